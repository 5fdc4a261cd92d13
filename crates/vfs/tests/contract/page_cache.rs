//! The page cache against a model of two maps, and what eviction must and must not do.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use vfs::{Block, Budget, PageCache, WriteBack};

const INOS: u64 = 3;
const PAGES: u64 = 200;

#[derive(Clone, Debug)]
enum CacheCall {
    InsertClean(u64, u64, u8),
    InsertDirty(u64, u64, u8),
    Change(u64, u64, u8),
    MarkClean(u64, u64),
    MarkDirty(u64, u64),
    Get(u64, u64),
    Remove(u64, u64),
    DropRange(u64, u64, u64),
    Truncate(u64, u64),
    Forget(u64),
}

fn call() -> impl Strategy<Value = CacheCall> {
    let at = (1..=INOS, 0..PAGES);
    prop_oneof![
        8 => (at.clone(), any::<u8>()).prop_map(|((i, p), v)| CacheCall::InsertClean(i, p, v)),
        8 => (at.clone(), any::<u8>()).prop_map(|((i, p), v)| CacheCall::InsertDirty(i, p, v)),
        4 => (at.clone(), any::<u8>()).prop_map(|((i, p), v)| CacheCall::Change(i, p, v)),
        8 => at.clone().prop_map(|(i, p)| CacheCall::MarkClean(i, p)),
        2 => at.clone().prop_map(|(i, p)| CacheCall::MarkDirty(i, p)),
        4 => at.clone().prop_map(|(i, p)| CacheCall::Get(i, p)),
        2 => at.clone().prop_map(|(i, p)| CacheCall::Remove(i, p)),
        1 => (at.clone(), 0..PAGES).prop_map(|((i, p), e)| CacheCall::DropRange(i, p, e)),
        1 => at.prop_map(|(i, p)| CacheCall::Truncate(i, p)),
        1 => (1..=INOS).prop_map(CacheCall::Forget),
    ]
}

fn page(tag: u8) -> Block {
    Block::new([tag; drive::BLOCK_SIZE])
}

/// Contents by inode and index: a tag, and whether it is dirty.
type Model = BTreeMap<(u64, u64), (u8, bool)>;

fn apply(cache: &mut PageCache, model: &mut Model, call: &CacheCall) {
    match *call {
        CacheCall::InsertClean(i, p, v) => {
            cache.insert_clean(i, p, page(v));
            model.insert((i, p), (v, false));
        }
        CacheCall::InsertDirty(i, p, v) => {
            cache.insert_dirty(i, p, page(v));
            model.insert((i, p), (v, true));
        }
        CacheCall::Change(i, p, v) => {
            if let Some(block) = cache.dirty_mut(i, p) {
                *block.make_mut() = [v; drive::BLOCK_SIZE];
                model.insert((i, p), (v, true));
            }
        }
        CacheCall::MarkClean(i, p) => {
            cache.mark_clean(i, p);
            model.entry((i, p)).and_modify(|e| e.1 = false);
        }
        CacheCall::MarkDirty(i, p) => {
            if cache.mark_dirty(i, p) {
                model.entry((i, p)).and_modify(|e| e.1 = true);
            }
        }
        CacheCall::Get(i, p) => {
            cache.get(i, p);
        }
        CacheCall::Remove(i, p) => {
            cache.remove(i, p);
            model.remove(&(i, p));
        }
        CacheCall::DropRange(i, p, e) => {
            cache.drop_range(i, p..e);
            model.retain(|&(mi, mp), _| mi != i || mp < p || mp >= e);
        }
        CacheCall::Truncate(i, p) => {
            cache.truncate(i, p);
            model.retain(|&(mi, mp), _| mi != i || mp < p);
        }
        CacheCall::Forget(i) => {
            cache.forget(i);
            model.retain(|&(mi, _), _| mi != i);
        }
    }
}

/// Everything the two must agree on when clean pages may be missing from the cache.
fn check(cache: &PageCache, model: &Model, all_present: bool) {
    let mut present = 0;
    for ino in 1..=INOS {
        let dirty: Vec<u64> =
            model.iter().filter(|(k, v)| k.0 == ino && v.1).map(|(k, _)| k.1).collect();
        assert_eq!(cache.dirty_in(ino, 0..u64::MAX).collect::<Vec<_>>(), dirty);
        assert_eq!(cache.last_dirty(ino), dirty.last().copied());
        assert_eq!(cache.dirty_count(ino), dirty.len());
        let some: Vec<u64> = dirty.iter().copied().filter(|p| (30..131).contains(p)).collect();
        assert_eq!(cache.dirty_in(ino, 30..131).collect::<Vec<_>>(), some);
        for from in (0..PAGES).step_by(8) {
            let next = dirty.iter().copied().find(|&p| p >= from);
            assert_eq!(cache.next_dirty(ino, from), next);
        }
        for index in 0..PAGES {
            let expected = model.get(&(ino, index));
            let found = cache.peek(ino, index);
            present += usize::from(found.is_some());
            assert_eq!(cache.is_dirty(ino, index), expected.is_some_and(|e| e.1));
            match (found, expected) {
                (Some(block), Some((tag, _))) => assert_eq!(block.bytes()[4095], *tag),
                (Some(_), None) => panic!("page {index} of {ino} came from nowhere"),
                (None, Some((_, dirty))) => assert!(!all_present && !dirty, "page lost"),
                (None, None) => {}
            }
        }
    }
    let dirty_inos: std::collections::BTreeSet<u64> =
        model.iter().filter(|(_, v)| v.1).map(|(k, _)| k.0).collect();
    assert!(cache.dirty_inos().eq(dirty_inos));
    assert_eq!(cache.budget().dirty(), model.values().filter(|v| v.1).count());
    assert_eq!(cache.budget().pages(), present);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn without_pressure_it_is_the_model(calls in prop::collection::vec(call(), 1..200)) {
        let mut cache = PageCache::new(64 << 20);
        let mut model = Model::new();
        for call in &calls {
            apply(&mut cache, &mut model, call);
        }
        check(&cache, &model, true);
    }

    #[test]
    fn under_pressure_only_clean_pages_go(
        limit in 1_usize..40,
        calls in prop::collection::vec(call(), 1..300),
    ) {
        let mut cache = PageCache::new(limit * drive::BLOCK_SIZE);
        let mut model = Model::new();
        for call in &calls {
            let before = cache.budget().pages();
            apply(&mut cache, &mut model, call);
            let pages = cache.budget().pages();
            let dirty = cache.budget().dirty();
            prop_assert_eq!(cache.budget().write_back() == WriteBack::Now, dirty > limit / 2);
            // Written-back pages leave the cache only when the next page needs room.
            if pages > before {
                prop_assert!(pages <= limit.max(dirty + 1), "{pages} pages");
            }
        }
        check(&cache, &model, false);
    }

    #[test]
    fn the_same_calls_leave_the_same_pages(calls in prop::collection::vec(call(), 1..300)) {
        let run = || {
            let mut cache = PageCache::new(16 * drive::BLOCK_SIZE);
            let mut model = Model::new();
            calls.iter().for_each(|c| apply(&mut cache, &mut model, c));
            (1..=INOS)
                .flat_map(|i| (0..PAGES).map(move |p| (i, p)))
                .filter(|&(i, p)| cache.peek(i, p).is_some())
                .collect::<Vec<_>>()
        };
        prop_assert_eq!(run(), run());
    }
}

#[test]
fn a_page_in_use_survives_a_stream() {
    let mut cache = PageCache::new(256 * drive::BLOCK_SIZE);
    cache.insert_clean(1, 0, page(7));
    for index in 0..10_000 {
        assert!(cache.get(1, 0).is_some(), "evicted at {index}");
        cache.insert_clean(2, index, page(0));
    }
    assert!(cache.budget().pages() <= 256);
}

#[test]
fn a_write_in_flight_does_not_see_a_later_change() {
    let mut cache = PageCache::new(1 << 20);
    cache.insert_dirty(1, 5, page(1));
    let in_flight = cache.get(1, 5).cloned().expect("just inserted");
    cache.mark_clean(1, 5);
    cache.dirty_mut(1, 5).expect("present").make_mut()[0] = 2;
    assert_eq!(in_flight.bytes()[0], 1);
    assert_eq!(cache.peek(1, 5).expect("present").bytes()[0], 2);
    assert!(cache.is_dirty(1, 5));
}

#[test]
fn caches_that_share_a_budget_are_full_together() {
    let budget = Arc::new(Budget::new(10 * drive::BLOCK_SIZE));
    let mut caches = [PageCache::sharing(&budget), PageCache::sharing(&budget)];
    for index in 0..6 {
        caches[0].insert_clean(1, index, page(0));
        caches[1].insert_dirty(2, index, page(0));
    }
    assert_eq!((budget.pages(), budget.dirty(), budget.excess(1)), (12, 6, 3));
    assert_eq!(budget.write_back(), WriteBack::Now);
    while budget.excess(1) > 0 {
        for cache in &mut caches {
            cache.evict(budget.excess(1));
        }
    }
    assert_eq!((budget.pages(), budget.dirty()), (9, 6));
    caches[1].forget(2);
    assert_eq!((budget.pages(), budget.dirty()), (3, 0));
}
