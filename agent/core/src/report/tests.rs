//! Reports are functions of what was seen.
