//! Asking the agent of this machine over its Unix socket.
//!
//! In goes a path of the local API, out comes its record. Deliberately absent: retries; who waits for an agent asks again.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::header::HOST;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};

use crate::config::{SOCKET_DEFAULT, SOCKET_NAME};

/// Longest wait for an answer: the agent answers from memory.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Largest answer: a thousand caches with all their holds.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Which agent is asked.
#[derive(Debug, Clone, Args)]
pub(super) struct SocketFlags {
    /// Unix socket of the agent; else stokehold.sock in the state folder, else /run/stokehold/agent.sock
    #[arg(long, env = "STOKEHOLD_SOCKET", value_name = "PATH")]
    socket: Option<PathBuf>,
    /// State folder of the agent
    #[arg(long, env = "STOKEHOLD_STATE", value_name = "DIR")]
    state: Option<PathBuf>,
}

/// Why the agent did not answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody is there.
    #[error("no agent answers at {}; if it runs, name its socket by --socket or STOKEHOLD_SOCKET", socket.display())]
    Nobody {
        /// Where.
        socket: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It did not answer in time, or not with HTTP.
    #[error("the agent at {} did not answer: {why}", socket.display())]
    NoAnswer {
        /// Where.
        socket: PathBuf,
        /// What happened.
        why: String,
    },
    /// It cannot say yet, or not that.
    #[error("the agent at {} says: {said}", socket.display())]
    Refused {
        /// Where.
        socket: PathBuf,
        /// What it said.
        said: String,
    },
    /// It is of another release, and the answer means nothing to this one.
    #[error("the answer of the agent at {} cannot be read; is it of another release?", socket.display())]
    Unreadable {
        /// Where.
        socket: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The system gives no runtime.
    #[error("could not start")]
    Start {
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A runtime that is enough for asking.
pub(super) fn runtime() -> Result<Runtime, AskError> {
    Builder::new_current_thread().enable_all().build().map_err(|source| AskError::Start { source })
}

/// The agent of this machine.
#[derive(Debug, Clone)]
pub(super) struct Agent {
    socket: PathBuf,
}

impl Agent {
    pub(super) fn of(flags: &SocketFlags) -> Self {
        let socket = match (&flags.socket, &flags.state) {
            (Some(socket), _) => socket.clone(),
            (None, Some(state)) => state.join(SOCKET_NAME),
            (None, None) => PathBuf::from(SOCKET_DEFAULT),
        };
        Self { socket }
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Asks for a record.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, AskError> {
        let socket = || self.socket.clone();
        let stream =
            UnixStream::connect(&self.socket).await.map_err(|source| AskError::Nobody { socket: socket(), source })?;
        let late = |_late| AskError::NoAnswer { socket: socket(), why: format!("not within {ANSWER_LIMIT:?}") };
        let (status, body) = tokio::time::timeout(ANSWER_LIMIT, exchange(stream, path))
            .await
            .map_err(late)?
            .map_err(|why| AskError::NoAnswer { socket: socket(), why })?;
        if status != StatusCode::OK {
            let said = String::from_utf8_lossy(&body).trim().to_owned();
            return Err(AskError::Refused { socket: socket(), said });
        }
        serde_json::from_slice(&body).map_err(|source| AskError::Unreadable { socket: socket(), source })
    }
}

async fn exchange(stream: UnixStream, path: &str) -> Result<(StatusCode, Bytes), String> {
    let failed = |error: hyper::Error| error.to_string();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    // Ends with the answer; what it says is said by the request too.
    tokio::spawn(connection);
    let request = Request::get(path).header(HOST, "stokehold").body(Empty::<Bytes>::new());
    let response = sender.send_request(request.map_err(|error| error.to_string())?).await.map_err(failed)?;
    let status = response.status();
    let body =
        Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await.map_err(|error| error.to_string())?;
    Ok((status, body.to_bytes()))
}
