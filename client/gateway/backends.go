package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"reel.internal/reel/client"
)

// backends are the models of the gateway's generators, by their names.
type backends struct {
	list    []*group
	aliases map[string]string
}

// newBackends returns the models of the settings. Errors: [ErrConfig].
func newBackends(o Options) (*backends, error) {
	b := &backends{aliases: map[string]string{}}
	for name, model := range o.Aliases {
		b.aliases[untagged(name)] = untagged(model)
	}
	for name, to := range b.aliases {
		if of, is := b.aliases[to]; is && of != to {
			return nil, fmt.Errorf("%w: --alias %s=%s: %s is an alias too: name its model", ErrConfig, name, to, to)
		}
	}
	waits := newShares(int64(o.Queue))
	shared := newRoom(o, func() []*group { return b.list })
	sockets := map[string]bool{}
	for _, one := range o.Generators {
		if sockets[one.Socket] {
			return nil, fmt.Errorf("%w: --generator: %s is given twice", ErrConfig, one.Socket)
		}
		sockets[one.Socket] = true
		to := b.named(one.Name)
		if to == nil {
			to = newGroup(one.Name, waits)
			b.list = append(b.list, to)
		}
		if len(to.list) == maxGenerators {
			return nil, fmt.Errorf("%w: --generator: %s has more than %d generators", ErrConfig, one.Name, maxGenerators)
		}
		to.add(one).room = shared
	}
	return b, nil
}

// named returns the model to which the settings have given a name, or nil.
func (b *backends) named(name string) *group {
	for _, one := range b.list {
		if name != "" && one.name == name {
			return one
		}
	}
	return nil
}

// untagged returns a model's name without Ollama's tag of every model.
func untagged(name string) string { return strings.TrimSuffix(name, ":latest") }

// model is a model that can be asked for.
type model struct {
	name string
	*group
	identity string // of its generators; empty: unknown, or several
}

// models lists the models whose generators have said their names, in the order of the settings.
func (b *backends) models(ctx context.Context) []model {
	names := make([]string, len(b.list))
	var all sync.WaitGroup
	for i, one := range b.list {
		all.Go(func() { names[i], _ = one.called(ctx) })
	}
	all.Wait()
	var list []model
	for i, name := range names {
		known := slices.ContainsFunc(list, func(m model) bool { return m.name == name })
		if name != "" && !known {
			list = append(list, model{name: name, group: b.list[i]})
		}
	}
	return list
}

// listed returns the names of the models, and behind them the aliases of these: clients choose among what is listed.
func (b *backends) listed(ctx context.Context) (names []string) {
	list := b.models(ctx)
	for _, m := range list {
		names = append(names, m.name)
	}
	for _, alias := range slices.Sorted(maps.Keys(b.aliases)) {
		_, serves := pick(list, b.aliases[alias])
		if _, own := pick(list, alias); serves && !own {
			names = append(names, alias)
		}
	}
	return names
}

// find returns the model that look does, for a request for tokens: to learn their names, it wakes generators that sleep
// and have never said them.
func (b *backends) find(ctx context.Context, name string) (model, error) {
	m, err := b.look(ctx, name)
	if err == nil || !b.wake(ctx) {
		return m, err
	}
	return b.look(ctx, name)
}

// look returns the model with a name, with one of its aliases, or with NAME:latest. Without a name it is the only model.
// It wakes no generator that sleeps.
func (b *backends) look(ctx context.Context, name string) (model, error) {
	name = untagged(name)
	if to, ok := b.aliases[name]; ok {
		name = to
	}
	if m, ok := pick(b.known(), name); ok && (name != "" || len(b.list) == 1) {
		return m, nil
	}
	list := b.models(ctx)
	if m, ok := pick(list, name); ok {
		return m, nil
	}
	if len(list) == 0 {
		return model{}, b.none(ctx)
	}
	if name == "" {
		return model{}, badField("model", "name one of "+b.names(list))
	}
	return model{}, &apiError{status: http.StatusNotFound, code: "model_not_found", param: "model",
		message: fmt.Sprintf("there is no model %q (there are: %s)", name, b.names(list))}
}

// known lists the models whose names are known without a question, so that a generator that does not
// answer delays only requests for its own model.
func (b *backends) known() (list []model) {
	for _, one := range b.list {
		if name := one.known(); name != "" {
			list = append(list, model{name: name, group: one})
		}
	}
	return list
}

// pick returns the model with a name, or the only one if name is empty.
func pick(list []model, name string) (model, bool) {
	for _, m := range list {
		if untagged(m.name) == name || name == "" && len(list) == 1 {
			return m, true
		}
	}
	return model{}, false
}

// wake wakes the generators that sleep and whose model's name neither they have said nor their record has, and reports
// whether there are any.
func (b *backends) wake(ctx context.Context) (any bool) {
	for _, one := range b.list {
		if name, err := one.called(ctx); name == "" && errors.Is(err, client.ErrSleeping) {
			_, _ = one.describe(ctx) // the next question tells the error
			any = true
		}
	}
	return any
}

// names lists the names that find knows.
func (b *backends) names(list []model) string {
	var names []string
	for _, m := range list {
		names = append(names, m.name)
	}
	return strings.Join(append(names, slices.Sorted(maps.Keys(b.aliases))...), ", ")
}

// none returns the reason why no generator has said its model's name.
func (b *backends) none(ctx context.Context) error {
	_, err := b.list[0].called(ctx)
	if err == nil {
		err = errDraining
	}
	return err
}

// ready reports whether a model can serve: its generator answers that it is ready, or sleeps until
// the next request.
func (b *backends) ready(ctx context.Context) bool {
	return slices.ContainsFunc(b.list, func(one *group) bool { return one.ready(ctx) > 0 })
}

// close closes all connections.
func (b *backends) close() {
	for _, one := range b.list {
		one.close()
	}
}
