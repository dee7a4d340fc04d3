package scheduler

import "reel.internal/reel/generator/internal/kv"

// CachedOf returns the numbers of pages that a user's prompts left in the chains of a scope, on the device and in the
// host tier, those that sequences hold included.
func (s *Scheduler) CachedOf(uid uint32, scope string) (device, host int) {
	return s.pages.Owned(kv.Owner{User: uint64(uid), Scope: scope})
}

// CachedOfAll is CachedOf for all users together.
func (s *Scheduler) CachedOfAll() (device, host int) {
	for _, owner := range s.pages.Owners() {
		d, h := s.pages.Owned(owner)
		device, host = device+d, host+h
	}
	return device, host
}

// DropOf frees the pages that a user's prompts left in the chains of a scope and that no sequence holds. It returns
// their number.
func (s *Scheduler) DropOf(uid uint32, scope string) int {
	return s.pages.DropOwned(kv.Owner{User: uint64(uid), Scope: scope})
}

// DropAll is DropOf for all users together.
func (s *Scheduler) DropAll() (dropped int) {
	s.pages.DropPartials()                // a user may have left no other page
	for before := -1; before < dropped; { // a page may come before pages of another user
		before = dropped
		for _, owner := range s.pages.Owners() {
			dropped += s.pages.DropOwned(owner)
		}
	}
	return dropped
}
