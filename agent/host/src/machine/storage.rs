//! Whether a filesystem stands on local NVMe, as `/sys` tells.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Most devices looked at below one filesystem: partitions, stripes and volumes of a machine with 24 disks stay under it.
const DEVICES_MAX: usize = 256;
/// EBS volumes show as NVMe too; they are a network away.
const REMOTE_MODEL: &str = "Amazon Elastic Block Store";
/// Instance store is local whatever else is told: a namespace under native multipath tells no transport.
const LOCAL_MODEL: &str = "Amazon EC2 NVMe Instance Storage";

/// What kind of storage a filesystem stands on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// Every disk below it is NVMe of this machine.
    Nvme,
    /// Something else, named.
    Other(String),
    /// It cannot be told; the text says why.
    Unknown(String),
}

/// Follows partitions and volumes (device mapper, md) down to disks. `device` is major and minor of the filesystem.
pub(super) fn of(sys: &Path, device: (u32, u32)) -> Storage {
    let link = sys.join(format!("dev/block/{}:{}", device.0, device.1));
    let Ok(first) = fs::canonicalize(&link) else {
        return Storage::Unknown(format!("device {}:{} is no block device", device.0, device.1));
    };
    let mut ahead = vec![first];
    let mut seen = BTreeSet::new();
    while let Some(device) = ahead.pop() {
        if !seen.insert(device.clone()) {
            continue;
        }
        if seen.len() > DEVICES_MAX {
            return Storage::Unknown(format!("there are more than {DEVICES_MAX} devices below it"));
        }
        let below = match below(&device) {
            Ok(below) => below,
            Err(why) => return Storage::Unknown(why),
        };
        if below.is_empty() {
            match disk(&device) {
                Storage::Nvme => {}
                told @ (Storage::Other(_) | Storage::Unknown(_)) => return told,
            }
        }
        ahead.extend(below);
    }
    Storage::Nvme
}

/// What a device is made of: the disk of a partition, the members of a volume, nothing for a disk.
fn below(device: &Path) -> Result<Vec<PathBuf>, String> {
    if device.join("partition").exists() {
        return Ok(device.parent().map(Path::to_owned).into_iter().collect());
    }
    let mut members = Vec::new();
    let Ok(slaves) = fs::read_dir(device.join("slaves")) else { return Ok(members) };
    for slave in slaves {
        let member = slave.and_then(|slave| fs::canonicalize(slave.path()));
        members.push(member.map_err(|error| format!("a member of {} cannot be read: {error}", name(device)))?);
    }
    Ok(members)
}

fn disk(device: &Path) -> Storage {
    let name = name(device);
    if !name.starts_with("nvme") {
        return Storage::Other(name);
    }
    let told = |what: &str| fs::read_to_string(device.join("device").join(what)).map(|text| text.trim().to_owned());
    match (told("model"), told("transport")) {
        (Ok(model), _) if model.starts_with(REMOTE_MODEL) => Storage::Other(model),
        (Ok(model), _) if model.starts_with(LOCAL_MODEL) => Storage::Nvme,
        (Ok(_), Ok(transport)) if transport == "pcie" => Storage::Nvme,
        (Ok(model), Ok(transport)) => Storage::Other(format!("{model} over {transport}")),
        (Err(error), _) | (_, Err(error)) => Storage::Unknown(format!("{name} does not tell what it is: {error}")),
    }
}

fn name(device: &Path) -> String {
    device.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests plant files as others would")]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A `/sys` of two disks, `nvme0n1` with a partition and `nvme1n1`, with volumes over them: `md0` over both, `dm-0` over it.
    struct Sys(tempfile::TempDir);

    impl Sys {
        fn new(models: [&str; 2]) -> Self {
            let sys = Self(tempfile::tempdir().expect("temporary folder"));
            for (at, model) in models.iter().enumerate() {
                let disk = format!("devices/nvme{at}n1");
                sys.write(&format!("{disk}/device/model"), &format!("{model}            \n"));
                sys.write(&format!("{disk}/device/transport"), "pcie\n");
                sys.write(&format!("{disk}/nvme{at}n1p1/partition"), "1\n");
            }
            sys.write("devices/sda/size", "1");
            sys.member("devices/md0", "devices/nvme0n1/nvme0n1p1");
            sys.member("devices/md0", "devices/nvme1n1");
            sys.member("devices/dm-0", "devices/md0");
            for (number, device) in [
                ("259:1", "nvme0n1/nvme0n1p1"),
                ("259:2", "nvme1n1"),
                ("9:0", "md0"),
                ("253:0", "dm-0"),
                ("8:0", "sda"),
            ] {
                sys.write("dev/block/.there", "");
                let (at, to) = (sys.0.path().join("dev/block").join(number), sys.0.path().join("devices").join(device));
                symlink(to, at).expect("link");
            }
            sys
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().expect("parent")).expect("folders");
            fs::write(path, text).expect("write");
        }

        fn member(&self, volume: &str, of: &str) {
            let slaves = self.0.path().join(volume).join("slaves");
            fs::create_dir_all(&slaves).expect("folders");
            symlink(self.0.path().join(of), slaves.join(of.rsplit('/').next().expect("name"))).expect("link");
        }

        fn of(&self, device: (u32, u32)) -> Storage {
            of(self.0.path(), device)
        }
    }

    #[test]
    fn instance_store_is_local_also_under_partitions_and_volumes() {
        let sys = Sys::new([LOCAL_MODEL, LOCAL_MODEL]);
        for device in [(259, 1), (259, 2), (9, 0), (253, 0)] {
            assert_eq!(sys.of(device), Storage::Nvme, "{device:?}");
        }
    }

    #[test]
    fn one_network_volume_among_the_members_makes_it_something_else() {
        let sys = Sys::new([LOCAL_MODEL, REMOTE_MODEL]);
        assert_eq!(sys.of((259, 1)), Storage::Nvme);
        assert_eq!(sys.of((253, 0)), Storage::Other(REMOTE_MODEL.to_owned()));
        assert_eq!(sys.of((8, 0)), Storage::Other("sda".to_owned()));
    }

    #[test]
    fn what_does_not_tell_is_unknown() {
        let sys = Sys::new(["Some Disk", "Some Disk"]);
        assert_eq!(sys.of((259, 2)), Storage::Nvme, "NVMe on PCIe of whatever make");
        fs::remove_file(sys.0.path().join("devices/nvme1n1/device/transport")).expect("remove");
        assert!(matches!(sys.of((9, 0)), Storage::Unknown(why) if why.starts_with("nvme1n1 does not tell")));
        assert!(matches!(sys.of((0, 35)), Storage::Unknown(why) if why == "device 0:35 is no block device"));
    }
}
