package store

import "time"

// The index changes first and the files follow, under the lock disk: whoever only asks takes the index's own lock, mu,
// and never waits for a disk that hangs.

// change runs edit, with mu held, and then removes the files that it returns.
func (s *Store) change(edit func() (files []string)) {
	s.disk.Lock()
	defer s.disk.Unlock()
	s.mu.Lock()
	files := edit()
	s.unlock()
	for _, file := range files {
		s.awaitDisk()
		_ = s.root.Remove(file) // if it fails, the next start finds the file again
	}
}

// keepTimes gives the files of pages that were used the time of that, for the next process.
func (s *Store) keepTimes() {
	s.disk.Lock()
	defer s.disk.Unlock()
	for path, used := range s.takeTouched() {
		s.awaitDisk()
		_ = s.root.Chtimes(path, used, used) // if it fails, the page only seems older after a restart
	}
}

// takeTouched returns the files whose times are older than their last use, and forgets them.
func (s *Store) takeTouched() map[string]time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	times := make(map[string]time.Time, len(s.touched))
	for _, e := range s.touched {
		if e.touched = false; s.index.entries[e.id] == e {
			times[pathOf(e.id)] = time.Unix(0, e.used)
		}
	}
	s.touched = nil
	return times
}

// awaitDisk lets a test make the disk hang.
func (s *Store) awaitDisk() {
	if s.hang != nil {
		s.hang()
	}
}
