package gateway

import "sync"

// shares divides a bounded number of things among users. A user may hold no more than it leaves
// free: half beside nobody, and there is always something for one more user.
type shares struct {
	total int64

	mu   sync.Mutex
	used int64
	held map[string]int64
}

func newShares(total int64) *shares { return &shares{total: total, held: map[string]int64{}} }

// take gives n to a user, or reports that the user may not hold so many now.
func (s *shares) take(user string, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[user]+n > s.total-s.used-n {
		return false
	}
	s.used += n
	s.held[user] += n
	return true
}

// give takes n back.
func (s *shares) give(user string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= n
	if s.held[user] -= n; s.held[user] == 0 {
		delete(s.held, user)
	}
}
