//! What will speak Kubernetes: objects in, labels and status out.
//!
//! Empty in this release: a standalone agent writes its report to a file. The room stands so that the arrows between rooms are held
//! from the first day.
