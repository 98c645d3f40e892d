//! What the agent serves: metrics and health on TCP, its status and plan on a Unix socket.
//!
//! In go the last pass, the board of jobs and the metrics; out go answers. The Unix socket answers more, since only this machine's
//! owner and group can open it. Deliberately absent: any request that changes something.

mod connection;
pub mod view;

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use serde::Serialize;
use stokehold_core::name::CacheId;
use stokehold_core::seen::Seen;
use stokehold_core::time::Millis;
use stokehold_host::machine;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::connection::{Answer, Reply, serve};
use crate::job::JobBoard;
use crate::metrics::Metrics;
use crate::run_loop::PassView;

/// The loop looks at least every 70 s; one that made no pass for this long is stuck.
pub const PASS_AGE_MAX: Duration = Duration::from_secs(180);

/// What is served. Clones share it.
#[derive(Debug, Clone)]
pub struct Shown {
    /// Name of the node.
    pub node: String,
    /// What the last pass saw and said.
    pub views: watch::Receiver<Option<Arc<PassView>>>,
    /// What runs now.
    pub board: JobBoard,
    /// All metrics.
    pub metrics: Metrics,
    /// When the agent started.
    pub since: Millis,
}

impl Shown {
    /// Serves metrics and health to whoever can connect, until `stop`.
    pub async fn serve_health(self, listener: TcpListener, stop: CancellationToken) {
        let answer: Answer = Arc::new(move |path| self.health(path));
        serve(listener, answer, stop).await;
    }

    /// Serves the local API, and what TCP has too, until `stop`.
    pub async fn serve_local(self, listener: UnixListener, stop: CancellationToken) {
        let answer: Answer = Arc::new(move |path| self.local(path));
        serve(listener, answer, stop).await;
    }

    /// Time since the last pass; since the start before the first.
    #[must_use]
    pub fn pass_age(&self) -> Duration {
        let last = self.views.borrow().as_ref().map_or(self.since, |view| view.now.monotonic);
        machine::monotonic().since(last)
    }

    fn health(&self, path: &str) -> Reply {
        match path {
            "/metrics" => Reply {
                status: StatusCode::OK,
                content_type: "text/plain; version=0.0.4; charset=utf-8",
                body: self.metrics.text(),
            },
            "/healthz" => {
                let age = self.pass_age();
                let is_well = age < PASS_AGE_MAX;
                let status = if is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
                text(status, &format!("{}: last pass {} s ago\n", if is_well { "ok" } else { "stuck" }, age.as_secs()))
            }
            "/readyz" => self.readiness(),
            _ => text(StatusCode::NOT_FOUND, "there are /metrics, /healthz and /readyz\n"),
        }
    }

    fn readiness(&self) -> Reply {
        let why = match self.views.borrow().as_ref().map(|view| view.observed.root.as_ref()) {
            Some(Seen::Present(_)) => return text(StatusCode::OK, "ok\n"),
            Some(Seen::Absent) => "the cache root is not there\n".to_owned(),
            Some(Seen::Unknown(why)) => format!("the cache root cannot be used: {why}\n"),
            None => NO_PASS.to_owned(),
        };
        text(StatusCode::SERVICE_UNAVAILABLE, &why)
    }

    fn local(&self, path: &str) -> Reply {
        let Some(rest) = path.strip_prefix("/v1/") else { return self.health(path) };
        let Some(pass) = self.views.borrow().clone() else { return text(StatusCode::SERVICE_UNAVAILABLE, NO_PASS) };
        match rest {
            "status" => json(&view::status(&self.node, &pass, &self.board.view())),
            "plan" => json(&view::plan(&pass)),
            "report" => json(&pass.report),
            other => match other.strip_prefix("why/").and_then(|name| name.split_once('/')) {
                Some((namespace, name)) => self.why(namespace, name, &pass),
                None => text(
                    StatusCode::NOT_FOUND,
                    "there are /v1/status, /v1/plan, /v1/report and /v1/why/NAMESPACE/NAME\n",
                ),
            },
        }
    }

    fn why(&self, namespace: &str, name: &str, pass: &PassView) -> Reply {
        let id = match CacheId::new(namespace, name) {
            Ok(id) => id,
            Err(error) => return text(StatusCode::BAD_REQUEST, &format!("{error}\n")),
        };
        match view::why(&id, pass, &self.board.view()) {
            Some(found) => json(&found),
            None => text(StatusCode::NOT_FOUND, &format!("nothing asks this node for {id}\n")),
        }
    }
}

const NO_PASS: &str = "no pass has been made yet\n";

fn text(status: StatusCode, body: &str) -> Reply {
    Reply { status, content_type: "text/plain; charset=utf-8", body: body.to_owned() }
}

fn json<T: Serialize>(value: &T) -> Reply {
    match serde_json::to_string(value) {
        Ok(body) => Reply { status: StatusCode::OK, content_type: "application/json", body: body + "\n" },
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error}\n")),
    }
}
