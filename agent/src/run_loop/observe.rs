//! What one pass sees: the tree, the root, the jobs, the listings.

use stokehold_core::file_op::Room;
use stokehold_core::observed::{Observed, RootView};
use stokehold_core::port::Tree;
use stokehold_core::seen::Seen;
use stokehold_core::survey::survey;

use super::Loop;
use crate::world::{World, share};

impl<W: World> Loop<W> {
    pub(super) async fn observe(&self) -> Observed {
        let tree = Tree(self.world.disk());
        // Jobs first: one that ends while the tree is looked at still counts as running, and is seen in the next pass.
        let jobs = self.jobs.view();
        let view = survey(tree).await;
        let room: Seen<Room> = match tree.room().await {
            Ok(room) => Seen::Present(room),
            Err(error) => Seen::Unknown(error.to_string()),
        };
        let root = match (self.world.root(), room, view.promised) {
            (Seen::Absent, _, _) => Seen::Absent,
            (Seen::Unknown(why), _, _)
            | (Seen::Present(_), Seen::Unknown(why), _)
            | (Seen::Present(_), _, Seen::Unknown(why)) => Seen::Unknown(why),
            (Seen::Present(_), Seen::Absent, _) => Seen::Unknown("its room was not measured".to_owned()),
            (Seen::Present(facts), Seen::Present(room), promised) => Seen::Present(RootView {
                path: facts.path,
                room,
                headroom: share(room.capacity.0, facts.headroom_percent),
                headroom_inodes: share(room.inodes, facts.headroom_inodes_percent).0,
                promised: match promised {
                    Seen::Present(promised) => promised,
                    // No record yet: nothing was promised to anybody.
                    Seen::Absent | Seen::Unknown(_) => std::collections::BTreeMap::new(),
                },
                storage: facts.storage,
                quota: facts.quota,
            }),
        };
        Observed { root, caches: view.caches, condemned: view.condemned, listings: self.listings.views(), jobs }
    }
}
