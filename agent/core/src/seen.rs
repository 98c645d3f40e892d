//! The three answers an observation can give.
//!
//! Deliberately absent: a conversion to `Option`, since that is where unknown becomes absent.

/// What was seen when something was looked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Seen<T> {
    /// Looked, and it is not there.
    Absent,
    /// Could not look, or the answer could not be trusted; the text says why.
    Unknown(String),
    /// Looked, and it is like this.
    Present(T),
}

impl<T> Seen<T> {
    /// A view of what is inside, with the same answer.
    pub fn as_ref(&self) -> Seen<&T> {
        match self {
            Self::Absent => Seen::Absent,
            Self::Unknown(why) => Seen::Unknown(why.clone()),
            Self::Present(inner) => Seen::Present(inner),
        }
    }
}
