package format

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/protocol"
)

// maxFormats is how many formats may be open, each with a process of some MiB.
const maxFormats = 128

// Service follows formats for one vocabulary. It is safe for concurrent use. Its program starts with the first
// format.
type Service struct {
	path       string // of the program
	command    func() *exec.Cmd
	tokens     int
	drawable   []uint32
	vocabulary sealed
	limits     limits
	warn       func(line string)
	start      sync.Once
	closed     chan struct{}

	mu       sync.Mutex
	process  *process      // nil while none runs
	changed  chan struct{} // closed, and made anew, when process changes
	failure  error         // of the last process
	restarts int
	formats  int // that are open
	uids     map[uint32]int
	names    map[engine.User]int // of the uids, the empty one too
}

// limits are the times after which reel-format counts as stalled. It has shorter ones itself.
type limits struct {
	fork, compile, mask, start time.Duration
}

// New returns a service that starts the program at path, which may be missing. warn gets a line for the log whenever
// the program ends unasked.
func New(path string, v Vocabulary, warn func(line string)) (*Service, error) {
	text := v.write()
	shared, err := share("reel-vocabulary", len(text))
	if err != nil {
		return nil, err
	}
	copy(shared.bytes, text)
	shared.unmap()
	return &Service{
		path: path, command: func() *exec.Cmd { return &exec.Cmd{Path: path, Args: []string{Program}} },
		tokens: v.Tokens, drawable: v.drawable(), vocabulary: shared, closed: make(chan struct{}),
		limits:  limits{fork: 4 * time.Second, compile: 4 * time.Second, mask: 3 * time.Second, start: startTime},
		changed: make(chan struct{}), uids: map[uint32]int{}, names: map[engine.User]int{}, warn: warn,
	}, nil
}

// Beside returns the path of the program beside an executable.
func Beside(executable string) string { return filepath.Join(filepath.Dir(executable), Program) }

// State returns the program's state.
func (s *Service) State() protocol.Formats {
	state := s.state()
	if state.State == protocol.FormatsIdle {
		// Without the lock, for which the engine's thread would wait as long as for the disk.
		if _, err := os.Stat(s.path); err != nil {
			state.State = protocol.FormatsMissing
		}
	}
	return state
}

// state is State, but for a program that is missing.
func (s *Service) state() protocol.Formats {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := protocol.Formats{State: protocol.FormatsIdle, Open: s.formats, Restarts: s.restarts}
	switch {
	case s.process != nil:
		state.State = protocol.FormatsRunning
	case s.failure != nil:
		state.State, state.Reason = protocol.FormatsFailed, s.failure.Error()
	}
	return state
}

// Close ends the program. Formats that are open live on until they are closed.
func (s *Service) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.closed)
	if s.process != nil {
		s.process.kill()
	}
	s.start.Do(s.vocabulary.closeFile) // otherwise keep closes it
}

// begin makes p the service's process, unless the service is closed.
func (s *Service) begin(p *process) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closed:
		p.kill()
		_ = p.wait()
		return false
	default:
	}
	s.process = p
	close(s.changed)
	s.changed = make(chan struct{})
	return true
}

// ended notes that the process has ended, or did not start. It returns false if the service is closed.
func (s *Service) ended(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process, s.failure = nil, err
	s.restarts++
	close(s.changed)
	s.changed = make(chan struct{})
	select {
	case <-s.closed:
		return false
	default:
		s.warn(fmt.Sprintf("formats cannot be followed until %s is started again: %v", Program, err))
		return true
	}
}

// ready returns a process that has read the vocabulary, and waits for one if need be.
func (s *Service) ready(ctx context.Context) (*process, error) {
	if _, err := os.Stat(s.path); err != nil {
		return nil, err
	}
	s.start.Do(func() { go s.keep() })
	ctx, cancel := context.WithTimeoutCause(ctx, s.limits.start, errors.New("the program takes too long to start"))
	defer cancel()
	for {
		s.mu.Lock()
		p, changed, failure := s.process, s.changed, s.failure
		s.mu.Unlock()
		var ready chan struct{}
		if p != nil {
			ready = p.ready
		} else if failure != nil {
			return nil, failure
		}
		select {
		case <-ready:
			return p, nil
		case <-changed:
		case <-s.closed:
			return nil, errors.New("the generator ends")
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// take takes a place for a user's format. A uid may have no more places than remain for others, and one of its names no
// more than remain of these for other names; without other names it may have all of them.
func (s *Service) take(user engine.User) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	uid, name := s.uids[user.UID], s.names[user]
	most := min(maxFormats/2, maxFormats-s.formats)
	if user.Name != "" || name < uid {
		most -= uid
	}
	if name >= most {
		return busy(s.formats)
	}
	s.count(user, 1)
	return nil
}

// give gives a place back.
func (s *Service) give(user engine.User) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count(user, -1)
}

// count adds n to the formats of a user.
func (s *Service) count(user engine.User, n int) {
	s.formats += n
	if s.uids[user.UID] += n; s.uids[user.UID] == 0 {
		delete(s.uids, user.UID)
	}
	if s.names[user] += n; s.names[user] == 0 {
		delete(s.names, user)
	}
}

// Compile compiles a user's format. Its first mask is then ready. Errors are of the protocol: format_unavailable,
// bad_format, format_failed and busy, or ctx's.
func (s *Service) Compile(ctx context.Context, user engine.User, f protocol.Format) (engine.Format, error) {
	kind, text, err := textOf(f)
	if err != nil {
		return nil, refused(err.Error())
	}
	return s.follow(ctx, user, kind, text)
}

// follow compiles a user's format, which may draw some control tokens.
func (s *Service) follow(ctx context.Context, user engine.User, kind kind, text string,
	control ...int32) (engine.Format, error) {
	if err := s.take(user); err != nil {
		return nil, err
	}
	q, err := s.compile(ctx, kind, text, control...)
	if err != nil {
		s.give(user)
		return nil, err
	}
	q.closed = func() { s.give(user) }
	return q, nil
}

func (s *Service) compile(ctx context.Context, kind kind, text string, control ...int32) (*Sequence, error) {
	p, err := s.ready(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	q, err := s.sequence(p, kind, text, control...)
	if err != nil {
		return nil, unavailable(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = q.conn.Close() })
	defer stop()
	var told *protocol.Error // by the process
	if err = q.awaitFork(s.limits.fork); err != nil && ctx.Err() == nil && !errors.As(err, &told) {
		p.kill() // it is stalled, or has ended already
		err = failed(Program + " did not answer, and is started again")
	}
	if err == nil {
		err = q.awaitCompile(s.limits.compile)
	}
	if err != nil {
		q.Close()
		return nil, errors.Join(context.Cause(ctx), err)
	}
	return q, nil
}
