package scheduler

// CachedOf returns the numbers of pages that a user's prompts left in the chains, on the device and in the host
// tier, those that sequences hold included.
func (s *Scheduler) CachedOf(user uint32) (device, host int) { return s.pages.Owned(uint64(user)) }

// CachedOfAll is CachedOf for all users together.
func (s *Scheduler) CachedOfAll() (device, host int) {
	for _, user := range s.pages.Owners() {
		d, h := s.pages.Owned(user)
		device, host = device+d, host+h
	}
	return device, host
}

// DropOf frees the pages that a user's prompts left in the chains and that no sequence holds. It returns their
// number.
func (s *Scheduler) DropOf(user uint32) int { return s.pages.DropOwned(uint64(user)) }

// DropAll is DropOf for all users together.
func (s *Scheduler) DropAll() (dropped int) {
	for before := -1; before < dropped; { // a page may come before pages of another user
		before = dropped
		for _, user := range s.pages.Owners() {
			dropped += s.pages.DropOwned(user)
		}
	}
	return dropped
}
