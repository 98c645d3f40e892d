//! Flags and files in, settings or errors out, as tables.

use clap::{CommandFactory as _, Parser};

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    flags: RunFlags,
}

fn flags(line: &[&str]) -> RunFlags {
    Line::try_parse_from(std::iter::once(&"run").chain(line)).expect("parses").flags
}

fn resolve(line: &[&str], text: &str) -> Result<Loaded, String> {
    Config::resolve(&flags(line), "agent.yaml", text, "Node-7.example\n").map_err(|error| error.to_string())
}

fn config(line: &[&str], text: &str) -> Config {
    resolve(line, text).expect("resolves").0
}

#[test]
fn nothing_but_a_root_is_needed() {
    for text in ["", "# only a comment\n---\n", "headroom:\n  # availablePercent: 20\n"] {
        let config = config(&["--root", "/r"], text);
        let want = Config {
            root: "/r".into(),
            desired: None,
            state: STATE_DEFAULT.into(),
            listen: LISTEN_DEFAULT.parse().expect("an address"),
            socket: SOCKET_DEFAULT.into(),
            node_name: "node-7.example".to_owned(),
            containerd: CONTAINERD_DEFAULT.into(),
            secrets: None,
            allow_non_local: false,
            immutable: true,
            headroom: Headroom { available_percent: 15, inodes_percent: 5 },
            transfer: Transfer { connections_max: 8, part_size: Bytes(8 << 20) },
            stages_max: 2,
            s3: S3::default(),
            log: Log { format: LogFormat::Text, level: LogLevel::Info },
        };
        assert_eq!(config, want);
    }
    let error = resolve(&[], "").expect_err("no root");
    assert_eq!(
        error,
        "root is not set; set it by --root, STOKEHOLD_ROOT or the file; allowed: an absolute path on local disk"
    );
}

#[test]
fn a_flag_stands_over_the_file_and_the_file_over_the_default() {
    let text = "root: /file\nstate: /file-state/\nlisten: 0.0.0.0:1\nnodeName: of-file\ncontainerd: /c\nsecrets: /s\ndesired: /d\n";
    let from_file = config(&[], text);
    assert_eq!(from_file.root, Path::new("/file"));
    assert_eq!(from_file.socket, Path::new("/file-state/stokehold.sock"));
    assert_eq!((from_file.listen.to_string(), from_file.node_name), ("0.0.0.0:1".to_owned(), "of-file".to_owned()));
    let line = [
        "--root",
        "/flag",
        "--state",
        "/flag-state",
        "--listen",
        "[::1]:2",
        "--node-name",
        "of-flag",
        "--socket",
        "/x.sock",
    ];
    let from_flags = config(&line, text);
    assert_eq!((from_flags.root.as_path(), from_flags.socket.as_path()), (Path::new("/flag"), Path::new("/x.sock")));
    assert_eq!((from_flags.listen.to_string(), from_flags.node_name), ("[::1]:2".to_owned(), "of-flag".to_owned()));
    assert_eq!(from_flags.secrets.as_deref(), Some(Path::new("/s")));
    assert_eq!(
        (from_flags.desired.as_deref(), from_flags.containerd.as_path()),
        (Some(Path::new("/d")), Path::new("/c"))
    );
}

#[test]
fn every_flag_has_a_twin_in_the_environment() {
    let command = Line::command();
    let flags: Vec<_> =
        command.get_arguments().filter(|flag| flag.get_long().is_some_and(|long| long != "help")).collect();
    assert_eq!(flags.len(), 10);
    for flag in flags {
        let long = flag.get_long().expect("has one");
        let want = format!("STOKEHOLD_{}", long.to_ascii_uppercase().replace('-', "_"));
        assert_eq!(flag.get_env().and_then(|name| name.to_str()), Some(want.as_str()), "--{long}");
    }
}

#[test]
fn a_full_file_is_read() {
    let text = "
allowNonLocal: true
immutable: false
headroom: { availablePercent: 20, inodesPercent: 0 }
transfer: { connectionsMax: 64, partSize: 16Mi }
jobs: { stagesMax: 4 }
s3: { anonymous: true, endpoint: 'http://127.0.0.1:8333', region: us-east-2 }
log: { format: json, level: debug }
";
    let (config, unknown) = resolve(&["--root", "/r"], text).expect("resolves");
    assert!(config.allow_non_local && !config.immutable && unknown.is_empty());
    assert_eq!(config.headroom, Headroom { available_percent: 20, inodes_percent: 0 });
    assert_eq!(config.transfer, Transfer { connections_max: 64, part_size: Bytes(16 << 20) });
    let s3 = S3 {
        anonymous: true,
        endpoint: Some("http://127.0.0.1:8333".to_owned()),
        region: Some("us-east-2".to_owned()),
    };
    assert_eq!((config.stages_max, config.s3), (4, s3));
    assert_eq!(config.log, Log { format: LogFormat::Json, level: LogLevel::Debug });
}

#[test]
fn a_bad_value_stops_the_start_with_key_value_and_range() {
    for (text, want) in [
        ("root: r", "root: \"r\" is not allowed; allowed: an absolute path without .."),
        ("state: /a/../b", "state: \"/a/../b\" is not allowed; allowed: an absolute path without .."),
        (
            "listen: 9478",
            "listen: \"9478\" is not allowed; allowed: an address and a port, such as 127.0.0.1:9478 or [::]:9478",
        ),
        ("nodeName: a_b", "nodeName: \"a_b\" is not allowed; allowed: at most 253 of a-z"),
        ("headroom: { availablePercent: 91 }", "headroom.availablePercent: \"91\" is not allowed; allowed: 0 to 90"),
        ("headroom: { inodesPercent: -1 }", "headroom.inodesPercent: \"-1\" is not allowed; allowed: 0 to 90"),
        ("transfer: { connectionsMax: 0 }", "transfer.connectionsMax: \"0\" is not allowed; allowed: 1 to 64"),
        ("transfer: { connectionsMax: 65 }", "transfer.connectionsMax: \"65\" is not allowed; allowed: 1 to 64"),
        ("transfer: { partSize: 1Ki }", "transfer.partSize: \"1.0 KiB\" is not allowed; allowed: 1Mi to 64Mi"),
        ("transfer: { partSize: 65Mi }", "transfer.partSize: \"65.0 MiB\" is not allowed; allowed: 1Mi to 64Mi"),
        ("jobs: { stagesMax: 17 }", "jobs.stagesMax: \"17\" is not allowed; allowed: 1 to 16"),
        ("s3: { region: us east }", "s3.region: \"us east\" is not allowed; allowed: letters"),
        ("log: { format: xml }", "log.format: \"xml\" is not allowed; allowed: text, json"),
        ("log: { level: INFO }", "log.level: \"INFO\" is not allowed; allowed: error, warn, info, debug, trace"),
        ("transfer: { partSize: 8MB }", "agent.yaml:1:23: \"8MB\" is not an amount of bytes; allowed"),
        (
            "s3: { endpoint: 'minio:9000' }",
            "agent.yaml:1:17: \"minio:9000\" is not a usable URL: it has no scheme; allowed",
        ),
        (
            "\nimmutable: perhaps",
            "agent.yaml:2:12: not a boolean; allowed: true, false, in the line \"immutable: perhaps\"",
        ),
        ("jobs: { stagesMax: many }", "agent.yaml:1:20: not a whole number, in the line \"jobs: { stagesMax: many }\""),
        ("[", "agent.yaml:"),
        ("just words", "agent.yaml:1:1: "),
    ] {
        let line: &[&str] = if text.contains("root") { &[] } else { &["--root", "/r"] };
        let error = resolve(line, text).expect_err(text);
        assert!(error.starts_with(want), "\nfound: {error}\nwant:  {want}");
    }
    let long = format!("/{}", "x".repeat(107));
    let error = resolve(&["--root", "/r", "--socket", &long], "").expect_err("too long");
    assert!(error.ends_with("allowed: a path of at most 107 bytes"), "{error}");
}

#[test]
fn unknown_keys_are_told_and_do_not_stop_the_start() {
    let text = "root: /r\nnext: 1\ntransfer: { bandwidth: 1Gi, connectionsMax: 3 }\nlog: { to: [a, b] }\ncluster: { a: { b: c } }\n";
    let (config, unknown) = resolve(&[], text).expect("resolves");
    assert_eq!(config.transfer.connections_max, 3);
    assert_eq!(unknown, ["cluster", "log.to", "next", "transfer.bandwidth"]);
}

#[test]
fn a_named_file_must_be_there_and_the_default_one_need_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("none.yaml");
    let named = RunFlags { config: Some(missing), root: Some("/r".into()), ..RunFlags::default() };
    assert!(matches!(Config::load(&named), Err(ConfigError::Read { .. })));
}

#[test]
fn every_key_and_every_flag_stands_in_the_documentation() {
    let text = include_str!("../../../docs/CONFIGURATION.md");
    let command = Line::command();
    let flags = command.get_arguments().filter_map(|flag| flag.get_long()).filter(|long| *long != "help");
    let wanted = known_keys().into_iter().chain(flags.map(|long| format!("--{long}")));
    let missing: Vec<String> = wanted.filter(|word| !text.contains(&format!("`{word}`"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
