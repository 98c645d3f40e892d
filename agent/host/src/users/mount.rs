//! Lines of `mountinfo`.

use std::io;
use std::path::Path;

use super::Device;

/// One mount in one namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) id: u64,
    pub(super) device: Device,
    /// What of its filesystem it shows.
    pub(super) root: String,
    /// Where, as the reader of the file sees it.
    pub(super) point: String,
    /// Folders an overlay is made of, as they were named when it was mounted.
    pub(super) layers: Vec<String>,
}

pub(super) fn read(path: &Path) -> io::Result<Vec<Mount>> {
    let text = std::fs::read(path)?;
    Ok(String::from_utf8_lossy(&text).lines().filter_map(parse).collect())
}

/// `36 35 98:0 /root /point rw,noatime master:1 - ext4 /dev/sda rw,lowerdir=/a:/b`
fn parse(line: &str) -> Option<Mount> {
    let mut fields = line.split(' ');
    let id = fields.next()?.parse().ok()?;
    let (major, minor) = fields.nth(1)?.split_once(':')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let root = plain(fields.next()?);
    let point = plain(fields.next()?);
    let kind = fields.by_ref().skip_while(|field| *field != "-").nth(1)?;
    let options = fields.nth(1).unwrap_or_default();
    let layers = if kind == "overlay" { layers(options) } else { Vec::new() };
    // The folder was removed while it was mounted.
    let root = root.strip_suffix("//deleted").map(str::to_owned).unwrap_or(root);
    Some(Mount { id, device, root, point, layers })
}

/// Backslash escapes of `mountinfo`: three octal digits.
fn plain(text: &str) -> String {
    if !text.contains('\\') {
        return text.to_owned();
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        match (first, after) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            (byte, after) => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// `lowerdir=/a:/b`, also as `lowerdir+=/a` and `datadir+=/a`; a colon in a name has a backslash before it.
fn layers(options: &str) -> Vec<String> {
    let mut layers = Vec::new();
    // The kernel writes commas of a name as octal, so those left stand between options.
    for (key, value) in options.split(',').filter_map(|option| option.split_once('=')) {
        if matches!(key, "lowerdir" | "lowerdir+" | "datadir+" | "upperdir" | "workdir") {
            let value = plain(value);
            let parts = split(&value, ':').into_iter().filter(|part| !part.is_empty());
            layers.extend(parts.map(|part| part.replace('\\', "")));
        }
    }
    layers
}

fn split(text: &str, at: char) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut is_escaped) = (0, false);
    for (position, letter) in text.char_indices() {
        if letter == at && !is_escaped {
            parts.push(&text[start..position]);
            start = position + letter.len_utf8();
        }
        is_escaped = letter == '\\' && !is_escaped;
    }
    parts.push(&text[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bind_tells_what_of_which_filesystem_it_shows() {
        let line =
            "601 590 259:1 /stokehold/with\\040space /models ro,relatime master:1 shared:7 - xfs /dev/md127 rw,attr2";
        let mount = parse(line).expect("mount");
        assert_eq!((mount.id, mount.device), (601, (259, 1)));
        assert_eq!((mount.root.as_str(), mount.point.as_str()), ("/stokehold/with space", "/models"));
        assert_eq!(parse("601 590 259:1 /gone//deleted /models ro - xfs none rw").expect("mount").root, "/gone");
        assert_eq!(
            parse("601 590 0:4 net:[4026531840] /run/net rw - nsfs nsfs rw").expect("mount").root,
            "net:[4026531840]"
        );
    }

    #[test]
    fn an_overlay_tells_its_layers() {
        let line = "9 8 0:50 / / rw - overlay overlay rw,lowerdir=/a/b:/c\\134:d:/e\\040f\\054g,upperdir=/up,workdir=/work,xino=off";
        assert_eq!(parse(line).expect("mount").layers, ["/a/b", "/c:d", "/e f,g", "/up", "/work"]);
        let line = "9 8 0:50 / / rw - overlay overlay rw,lowerdir+=/a,datadir+=/b";
        assert_eq!(parse(line).expect("mount").layers, ["/a", "/b"]);
    }
}
