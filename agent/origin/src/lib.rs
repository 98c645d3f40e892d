//! Where bytes come from: list and pin a tree, read ranges of it.
//!
//! In goes a source, out come its files and their bytes, through [`Fill`](stokehold_core::port::Fill), or an
//! [`OriginError`](stokehold_core::port::OriginError) that names what failed. Deliberately absent: retries, parallelism, time
//! limits of a whole transfer, and progress, which are core's; and disks, which are host's.

pub mod node_path;
pub mod origins;
pub mod s3;

pub use node_path::NodePathOrigin;
pub use origins::Origins;
pub use s3::{S3Credentials, S3Options, S3Origin};
