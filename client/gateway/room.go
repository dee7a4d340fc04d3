package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// MaxStay bounds [Options.Stay].
const MaxStay = protocol.MaxIdle * time.Second

const (
	usualStay = 30 * time.Second       // a model stays on its device after its last request
	leaveTime = 3 * time.Second        // for a generator that was asked to sleep: to answer, and to free its memory
	refusedIn = 200 * time.Millisecond // no holder is asked again so soon after none could leave
)

// room has models leave a device on which the generator of another one finds no memory. One leaves at a time.
type room struct {
	models func() []*group
	stay   time.Duration
	log    zerolog.Logger

	asking  sync.Mutex // held while generators are asked
	mu      sync.Mutex // of what follows, by device
	left    map[string]departure
	refused map[string]refusal
}

// departure is a model's leaving of a device for another one, which has not come there yet.
type departure struct {
	wanted *backend
	at     time.Time
}

// refusal is why no model leaves a device.
type refusal struct {
	err error
	at  time.Time
}

// newRoom returns the room of a gateway's models.
func newRoom(o Options, models func() []*group) *room {
	return &room{models: models, stay: o.Stay, log: o.Logger, left: map[string]departure{}, refused: map[string]refusal{}}
}

// holder is a generator whose model is on a device.
type holder struct {
	*backend
	model   string
	idle    time.Duration // since its last request; 0: one runs
	loading bool          // its model comes to a device, which is not known yet
	why     string        // it does not leave; empty: it may later
}

// errStays comes with the error of [room.make] if it may change soon: nothing runs on a model that holds the device, and
// it only has to stay a while longer.
var errStays = errors.New("a model stays on the device for a while after its last request")

// make has the model leave the device that has been idle longest of those on it, so that the generator for finds memory
// there. It returns nil if one leaves, or has left just now. Otherwise the error says who holds the device, for clients.
func (r *room) make(ctx context.Context, device string, wanted *backend) error {
	r.asking.Lock()
	defer r.asking.Unlock()
	r.mu.Lock()
	leaves, last := r.left[device], r.refused[device]
	r.mu.Unlock()
	if time.Since(leaves.at) < leaveTime {
		return nil
	}
	if time.Since(last.at) < refusedIn {
		return last.err
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), leaveTime) // a model that was asked leaves
	defer stop()
	list := r.holders(ctx, device, wanted)
	for i := range list {
		h := &list[i]
		if h.idle == 0 || h.idle < r.stay {
			break // those behind it have been idle for less
		}
		if r.asleep(ctx, h) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.left[device] = departure{wanted, time.Now()}
			return nil
		}
	}
	err := r.full(list)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused[device] = refusal{err, time.Now()}
	return err
}

// come notes that a generator serves: what left a device for it has made room.
func (r *room) come(b *backend) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for device, d := range r.left {
		if d.wanted == b {
			delete(r.left, device)
		}
	}
}

// asleep asks a generator to sleep and reports whether it does. Otherwise h says why it does not.
func (r *room) asleep(ctx context.Context, h *holder) bool {
	c, err := h.reach(ctx)
	if err == nil {
		err = c.Sleep(ctx, r.stay)
	}
	switch code := codeOf(err); {
	case err == nil, errors.Is(err, client.ErrSleeping), code == protocol.CodeDraining:
		return true
	case code == protocol.CodeNotIdle:
		h.idle = 0
	default:
		h.why = cmp.Or(code, "no answer")
		r.log.Warn().Str("model", h.model).Err(err).Msg("a model does not leave its device for another one")
	}
	return false
}

// holders lists the generators whose models are on a device, the one that has been idle longest first. Those of the
// model for which room is wanted are left out: one of them is to serve beside the others.
func (r *room) holders(ctx context.Context, device string, wanted *backend) []holder {
	var mu sync.Mutex
	var all sync.WaitGroup
	var list []holder
	for _, g := range r.models() {
		if slices.Contains(g.list, wanted) {
			continue
		}
		for _, b := range g.list {
			all.Go(func() {
				h := holder{backend: b, model: g.known()}
				if h.ask(ctx, device) {
					mu.Lock()
					defer mu.Unlock()
					list = append(list, h)
				}
			})
		}
	}
	all.Wait()
	slices.SortFunc(list, func(a, b holder) int {
		return cmp.Or(cmp.Compare(b.idle, a.idle), cmp.Compare(a.model, b.model), cmp.Compare(a.index, b.index))
	})
	return list
}

// ask asks the generator what it does, and reports whether its model is on the device, or comes to one.
func (h *holder) ask(ctx context.Context, device string) bool {
	s, err := h.status(ctx)
	var refused *client.Error
	if errors.As(err, &refused) {
		h.loading = refused.Code == protocol.CodeLoading && refused.WaitsFor == ""
		return h.loading
	}
	if err != nil || s.Device != device || s.State != protocol.StateReady {
		return false
	}
	h.model = cmp.Or(h.model, s.Model)
	if h.running.Load() == 0 { // none is on its way from here
		h.idle = time.Duration(s.IdleS * float64(time.Second))
	}
	return true
}

// full returns the error that says who holds the device.
func (r *room) full(list []holder) error {
	const none = "there is no room on the GPU for this model now: "
	e := &apiError{status: http.StatusServiceUnavailable, code: protocol.CodeGPUBusy, retry: 10,
		message: none + "other programs hold it (ask again in 10 s)"}
	if len(list) == 0 {
		return e
	}
	var who []string
	soon, wait := false, math.Inf(1)
	for _, h := range list {
		who = append(who, h.model+" ("+h.state()+")")
		if h.why == "" {
			soon, wait = soon || h.idle > 0 || h.loading, min(wait, (r.stay-h.idle).Seconds())
		}
	}
	if !math.IsInf(wait, 1) {
		e.retry = max(1, int(math.Ceil(wait)))
	}
	e.message = fmt.Sprintf("%sit is held by %s (ask again in %d s)", none, strings.Join(who, ", "), e.retry)
	if soon {
		return fmt.Errorf("%w: %w", e, errStays)
	}
	return e
}

// state says why a model does not leave now.
func (h *holder) state() string {
	switch {
	case h.why != "":
		return "it does not leave: " + h.why
	case h.loading:
		return "it is being loaded"
	case h.idle == 0:
		return "it has requests"
	}
	return fmt.Sprintf("its last request ended %.0f s ago", h.idle.Seconds())
}

// crowded has another model leave the device that the generator waits for, if err says that it waits for one. The error
// that it returns is err, with who holds the device if that may change soon; or only who holds it.
func (b *backend) crowded(ctx context.Context, err error) error {
	device := b.waitsFor(err)
	if device == "" {
		return err
	}
	b.setCrowded(device)
	full := b.room.make(ctx, device, b)
	switch {
	case full == nil:
		return err
	case errors.Is(full, errStays):
		return fmt.Errorf("%w: %w", full, err)
	}
	return full
}

// waitsFor returns the device for which the generator waits, or has given up to wait, by the error of a dial; empty: for
// none. After it has given up the next connection starts it again.
func (b *backend) waitsFor(err error) string {
	var told *client.Error
	if !errors.As(err, &told) {
		return ""
	}
	if told.Code == protocol.CodeGPUBusy && told.WaitsFor == "" { // of an older generator
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.full // what it waited for before
	}
	return told.WaitsFor
}

// comes reports whether err, of a dial, means that the generator will serve in a while.
func (b *backend) comes(err error) bool {
	return codeOf(err) == protocol.CodeLoading || b.waitsFor(err) != ""
}

// setCrowded notes the device on which the generator found no room; empty: it found some.
func (b *backend) setCrowded(device string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.full = device
}

// wakes is called before a request wakes the generator. If its last start found no room, the model that is to leave is
// asked at once, so that both happen at the same time.
func (b *backend) wakes(ctx context.Context) {
	b.mu.Lock()
	device := b.full
	b.mu.Unlock()
	if device == "" {
		return
	}
	go func() {
		if b.room.make(ctx, device, b) != nil {
			b.setCrowded("") // the start itself says whether it finds room
		}
	}()
}

// came notes that the generator serves, if its start found no room before.
func (b *backend) came() {
	b.mu.Lock()
	device := b.full
	b.mu.Unlock()
	if device != "" {
		b.room.come(b)
	}
}
