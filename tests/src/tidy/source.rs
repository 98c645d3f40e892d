//! Just enough of Rust's grammar to count lines, braces and functions.
//!
//! In: the text of a `.rs` file as rustfmt leaves it. Out: the same text with comments and literals blanked, its
//! functions, its modules. Deliberately absent: macros, types and names; the compiler knows those.

/// The text with comments and the insides of literals as spaces; lines and columns stay where they were.
#[must_use]
pub fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let rest = &chars[at..];
        let Some(length) = opaque_length(rest) else {
            code.push(rest[0]);
            at += 1;
            continue;
        };
        let is_comment = rest[0] == '/';
        for (index, &c) in rest[..length].iter().enumerate() {
            let is_end = index == 0 || index + 1 == length;
            code.push(match c {
                '\n' => '\n',
                // A literal stays visible as a pair of quotes, so that its line still counts as code.
                _ if is_end && !is_comment => '"',
                _ => ' ',
            });
        }
        at += length;
    }
    code
}

/// Length of the comment or literal that starts here, if one does.
fn opaque_length(rest: &[char]) -> Option<usize> {
    match rest {
        ['/', '/', ..] => Some(rest.iter().position(|&c| c == '\n').unwrap_or(rest.len())),
        ['/', '*', ..] => Some(block_comment_length(rest)),
        ['"', ..] => Some(string_length(rest)),
        ['\'', '\\', _, tail @ ..] => Some(tail.iter().position(|&c| c == '\'').map_or(rest.len(), |end| end + 4)),
        ['\'', _, '\'', ..] => Some(3),
        ['r', '"' | '#', ..] => raw_string_length(rest),
        _ => None,
    }
}

fn block_comment_length(rest: &[char]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        match &rest[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn string_length(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

fn raw_string_length(rest: &[char]) -> Option<usize> {
    let hashes = rest[1..].iter().take_while(|&&c| c == '#').count();
    let open = hashes + 2;
    if rest.get(open - 1) != Some(&'"') {
        return None;
    }
    let is_close = |at: usize| rest[at] == '"' && rest[at + 1..].iter().take_while(|&&c| c == '#').count() >= hashes;
    let close = (open..rest.len()).find(|&at| is_close(at));
    Some(close.map_or(rest.len(), |at| at + 1 + hashes))
}

/// The blanked text without the bodies of its `#[cfg(test)]` items.
#[must_use]
pub fn without_tests(code: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut kept = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(start) = rest.find(MARK) {
        kept.push_str(&rest[..start]);
        rest = &rest[start + MARK.len()..];
        rest = match body(rest) {
            Some((_, end)) => &rest[end..],
            None => rest,
        };
    }
    kept.push_str(rest);
    kept
}

/// Lines that hold code.
#[must_use]
pub fn line_count(code: &str) -> usize {
    code.lines().filter(|line| !line.trim().is_empty()).count()
}

/// A function that has a body.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Line of its `fn`, from 1.
    pub line: usize,
    /// Lines of code from its `fn` to its closing brace, both counted.
    pub lines: usize,
}

/// All functions of a blanked text, those inside others too.
#[must_use]
pub fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let is_word = !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let name: String = code[at + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if !is_word || name.is_empty() {
            continue;
        }
        if let Some((_, end)) = body(&code[at..]) {
            let line = code[..at].matches('\n').count() + 1;
            found.push(Function { name, line, lines: line_count(&code[at..at + end]) });
        }
    }
    found
}

/// Where the body of the item that starts here begins and ends; `None` when it ends with a semicolon.
fn body(code: &str) -> Option<(usize, usize)> {
    let mut brackets = 0_usize;
    let mut braces = 0_usize;
    let mut start = 0;
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' if braces == 0 => brackets += 1,
            ')' | ']' if braces == 0 => brackets = brackets.saturating_sub(1),
            ';' if braces == 0 && brackets == 0 => return None,
            '{' => {
                if braces == 0 {
                    start = at;
                }
                braces += 1;
            }
            '}' if braces == 1 => return Some((start, at + 1)),
            '}' => braces = braces.checked_sub(1)?,
            _ => {}
        }
    }
    None
}

/// Names and lines of the modules a blanked text declares, and whether each has its body in another file.
#[must_use]
pub fn modules(code: &str) -> Vec<(String, usize, bool)> {
    let mut found = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
        if words.next() != Some("mod") {
            continue;
        }
        if let Some(name) = words.next() {
            found.push((name.trim_end_matches(';').to_owned(), index + 1, name.ends_with(';')));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_in_comments_and_literals_do_not_count() {
        let text = "a /* { /* } */ */ \"{\\\"{\" '{' '\\'' b'\\u{7b}' r#\"{\"{\"# 'life // {\nb";
        assert_eq!(code_only(text).split_whitespace().collect::<String>(), "a\"\"\"\"\"\"b\"\"\"\"'lifeb");
        assert_eq!(code_only(text).lines().count(), 2);
        assert_eq!(code_only(text).chars().count(), text.chars().count());
    }

    #[test]
    fn a_function_is_measured_from_its_name_to_its_brace() {
        let code = "trait A { fn none(x: [u8; 2]); }\nfn two(f: fn(u8)) -> [u8; 2] {\n\n    { x }\n}\n";
        let found = functions(code);
        assert_eq!(found, [Function { name: "two".into(), line: 2, lines: 3 }]);
    }

    #[test]
    fn what_is_only_for_tests_is_left_out() {
        let code = "fn a() {}\n#[cfg(test)]\nmod tests;\n#[cfg(test)]\nmod more {\n    fn b() {}\n}\nfn c() {}\n";
        let kept = without_tests(code);
        let names: Vec<String> = functions(&kept).into_iter().map(|function| function.name).collect();
        assert_eq!(names, ["a", "c"]);
    }

    #[test]
    fn modules_are_found_with_and_without_a_body() {
        let found = modules("pub mod a;\nmod b {\n    pub(crate) mod c;\n}\nmodern();\n");
        assert_eq!(found, [("a".into(), 1, true), ("b".into(), 2, false), ("c".into(), 3, true)]);
    }
}
