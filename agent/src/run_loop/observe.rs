//! What one pass sees: the tree, the root, the jobs, the listings.

use std::collections::BTreeMap;

use stokehold_core::file_op::Room;
use stokehold_core::name::CacheId;
use stokehold_core::observed::{Observed, RootView};
use stokehold_core::port::Tree;
use stokehold_core::quantity::Bytes;
use stokehold_core::seen::Seen;
use stokehold_core::survey::survey;

use super::Loop;
use crate::world::{RootFacts, World, share};

impl<W: World> Loop<W> {
    pub(super) async fn observe(&self) -> Observed {
        let tree = Tree(self.world.disk());
        // Jobs first: one that ends while the tree is looked at still counts as running, and is seen in the next pass.
        let jobs = self.jobs.view();
        let said = self.said.as_ref();
        let is_served = |cache: &CacheId, snapshot| {
            let verdict = said.and_then(|said| said.caches.get(cache));
            verdict.is_some_and(|verdict| verdict.served == Some(snapshot))
        };
        let view = survey(tree, is_served).await;
        let room: Seen<Room> = match tree.room().await {
            Ok(room) => Seen::Present(room),
            Err(error) => Seen::Unknown(error.to_string()),
        };
        let (root, caches) = match (self.world.root(), room, view.promised, view.caches) {
            (Seen::Absent, _, _, _) => (Seen::Absent, BTreeMap::new()),
            (Seen::Unknown(why), _, _, _)
            | (Seen::Present(_), Seen::Unknown(why), _, _)
            | (Seen::Present(_), _, Seen::Unknown(why), _)
            | (Seen::Present(_), _, _, Seen::Unknown(why)) => (Seen::Unknown(why), BTreeMap::new()),
            (Seen::Present(_), Seen::Absent, _, _) => {
                (Seen::Unknown("its room was not measured".to_owned()), BTreeMap::new())
            }
            (Seen::Present(facts), Seen::Present(room), promised, caches) => {
                let view = root_view(facts, room, or_nothing(promised));
                (Seen::Present(view), or_nothing(caches))
            }
        };
        Observed { root, caches, condemned: view.condemned, listings: self.listings.views(), jobs }
    }
}

fn root_view(facts: RootFacts, room: Room, promised: BTreeMap<CacheId, Bytes>) -> RootView {
    RootView {
        path: facts.path,
        room,
        headroom: share(room.capacity.0, facts.headroom_percent),
        headroom_inodes: share(room.inodes, facts.headroom_inodes_percent).0,
        promised,
        storage: facts.storage,
        quota: facts.quota,
    }
}

/// What was never written down is nothing yet; what could not be read made the root unknown before.
fn or_nothing<T: Default>(seen: Seen<T>) -> T {
    match seen {
        Seen::Present(found) => found,
        Seen::Absent | Seen::Unknown(_) => T::default(),
    }
}
