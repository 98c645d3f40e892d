//! Progress of a one-off stage on standard error: a bar on a terminal, now and then a line elsewhere.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use stokehold_core::quantity::Bytes;
use tokio::task::JoinHandle;

use crate::cli::output::duration;
use crate::job::Progress;
use crate::server::view::eta_seconds;

/// How often a bar is drawn.
const DRAW_PERIOD: Duration = Duration::from_millis(200);
/// How often a line is written where there is no terminal: logs are kept.
const LINE_PERIOD: Duration = Duration::from_secs(10);
/// Parts of a bar.
const TEMPLATE: &str = "{bar:30} {msg}";

/// Shows progress until it is aborted.
pub(super) async fn show(progress: Arc<Progress>) {
    if std::io::stderr().is_terminal() { draw(&progress).await } else { write(&progress).await }
}

/// Waits until nothing is shown any more.
pub(super) async fn clear(shown: JoinHandle<()>) {
    // It was aborted.
    let _ended = shown.await;
}

async fn draw(progress: &Progress) {
    let bar = Cleared(ProgressBar::new(0));
    let style = ProgressStyle::with_template(TEMPLATE).expect("the template is checked by a test");
    bar.0.set_style(style.progress_chars("=> "));
    loop {
        let (done, total, rate) = progress.shown();
        // A bar of no length would look full.
        bar.0.set_length(total.0.max(1));
        bar.0.set_position(done.0);
        bar.0.set_message(line(done, total, rate));
        tokio::time::sleep(DRAW_PERIOD).await;
    }
}

async fn write(progress: &Progress) {
    loop {
        tokio::time::sleep(LINE_PERIOD).await;
        let (done, total, rate) = progress.shown();
        eprintln!("{}", line(done, total, rate));
    }
}

/// How far it is, in words.
fn line(done: Bytes, total: Bytes, rate: Bytes) -> String {
    if total == Bytes::ZERO {
        return "looking at what is there".to_owned();
    }
    if done >= total {
        return format!("{total}, verifying and publishing");
    }
    let eta = eta_seconds(done, total, rate).map(|seconds| format!(", {} left", duration(seconds)));
    // In the first second, and while nothing arrives, there is none.
    let rate = (rate > Bytes::ZERO).then(|| format!(", {rate}/s"));
    format!("{done} of {total}{}{}", rate.unwrap_or_default(), eta.unwrap_or_default())
}

/// Leaves no half bar behind however it ends.
struct Cleared(ProgressBar);

impl Drop for Cleared {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_reads_as_bytes_rate_and_time_left() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
        assert_eq!(line(Bytes(0), Bytes(0), Bytes(0)), "looking at what is there");
        assert_eq!(line(Bytes(1 << 30), Bytes(4 << 30), Bytes(1 << 28)), "1.0 GiB of 4.0 GiB, 256.0 MiB/s, 12s left");
        assert_eq!(line(Bytes(1 << 30), Bytes(4 << 30), Bytes(0)), "1.0 GiB of 4.0 GiB");
        assert_eq!(line(Bytes(5), Bytes(5), Bytes(1)), "5 B, verifying and publishing");
    }
}
