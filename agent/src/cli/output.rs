//! What the program prints: tables for people, JSON and YAML for scripts.
//!
//! In go texts and values, out goes standard output. A reader that went away is no failure. Deliberately absent: colours; they
//! would say nothing that the words do not.

use std::io::{self, Write as _};

use clap::ValueEnum;
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

/// In which form something is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Table,
    /// One JSON value.
    Json,
    /// One YAML document.
    Yaml,
}

/// Prints a text.
pub(super) fn print(text: &str) {
    let mut out = io::stdout().lock();
    // Whoever read may have gone, as `head` does.
    let _written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// A value in the form asked for; `table` makes the one for people.
pub(super) fn render<T: Serialize>(value: &T, format: Format, table: impl FnOnce(&T) -> String) -> String {
    match format {
        Format::Table => table(value),
        Format::Json => json(value),
        Format::Yaml => serde_saphyr::to_string(value).expect("our records have string keys and no failing serializer"),
    }
}

/// Indented, with a newline at its end.
pub(super) fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string_pretty(value).expect("our records have string keys and no failing serializer") + "\n"
}

/// Columns under a line of headings, without borders, as `kubectl` prints them.
pub(super) fn table<const COLUMNS: usize>(head: [&str; COLUMNS], rows: Vec<[String; COLUMNS]>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(head);
    table.add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 3));
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n") + "\n"
}

/// Seconds as people say them: `45s`, `3m10s`, `2h5m`.
pub(super) fn duration(seconds: u64) -> String {
    let (hours, minutes, rest) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m{rest}s"),
        (_, _) => format!("{hours}h{minutes}m"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_columns_under_headings() {
        let rows = vec![["a/llama".to_owned(), "Ready".to_owned()], ["b".to_owned(), "-".to_owned()]];
        assert_eq!(table(["CACHE", "PHASE"], rows), "CACHE     PHASE\na/llama   Ready\nb         -\n");
    }

    #[test]
    fn seconds_read_as_people_say_them() {
        let said = [0, 59, 60, 3_599, 3_600, 90_061].map(duration);
        assert_eq!(said, ["0s", "59s", "1m0s", "59m59s", "1h0m", "25h1m"]);
    }
}
