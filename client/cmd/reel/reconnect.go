package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

const (
	// reconnectTime bounds the wait for a generator that restarts, which loads its model.
	reconnectTime = time.Minute
	// reconnectPause is the time between two attempts that fail at once.
	reconnectPause = 200 * time.Millisecond
)

// lost reports whether err means that the generator has gone or goes away.
func lost(err error) bool {
	var reported *client.Error
	if errors.As(err, &reported) {
		switch reported.Code {
		case protocol.CodeDraining, protocol.CodeShutdown, protocol.CodeDeviceFailed, protocol.CodeModelChanged:
			return true
		}
	}
	return errors.Is(err, client.ErrConnectionLost) || errors.Is(err, client.ErrNoGenerator) ||
		errors.Is(err, client.ErrClosed) // by an attempt to connect again that failed
}

// reconnect replaces the client by one of the generator's next start, on the same socket.
func (t *talk) reconnect(ctx context.Context) error {
	t.client.Close()
	fmt.Fprintf(stderr(), "reel: the generator has gone: waiting up to %s for it to start again\n", t.patience)
	c, err := t.redial(ctx)
	if err != nil {
		return err
	}
	if err := checkChat(ctx, c); err != nil {
		c.Close()
		return err
	}
	model := ""
	if c.Model() != t.client.Model() {
		model = ", which now serves " + oneLine(c.Model())
	}
	fmt.Fprintf(stderr(), "reel: connected again%s; asking once more\n", model)
	t.client = c
	return nil
}

// redial connects to the socket of the last connection. Unlike a first dial, it also
// waits if the socket's directory is missing, or if the old generator still drains.
func (t *talk) redial(ctx context.Context) (*client.Client, error) {
	p := progress{wait: t.patience, out: stderr()}
	defer p.clear()
	deadline := time.Now().Add(t.patience)
	for {
		c, err := client.Dial(ctx, client.Options{
			Socket: t.stranger.peer.Socket, Wait: time.Until(deadline),
			OnLoading: p.show, OnPeer: t.stranger.meetAndPrint,
		})
		if err == nil || !lost(err) || time.Until(deadline) < reconnectPause {
			return c, err
		}
		select {
		case <-time.After(reconnectPause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// offerShorter returns asked without its oldest messages, half of those before the last
// one, if err says that asked is too long and a person agrees. The system message stays.
// Otherwise it returns an error, usually err.
func (t *talk) offerShorter(ctx context.Context, asked []client.Message, err error) ([]client.Message, error) {
	var reported *client.Error
	if !t.terminal || !errors.As(err, &reported) || reported.Code != protocol.CodePromptTooLong {
		return nil, err
	}
	system, earlier, last := split(asked)
	if len(earlier) == 0 || len(last.Content) > t.client.Limits().PromptBytes {
		return nil, err // dropping the others would not help
	}
	failure{exitUsage, reported.Code, reported.Message, "/new begins another conversation"}.print()
	n := oldestHalf(earlier)
	fmt.Fprintf(stderr(), "Drop the oldest %d of %d messages and ask again?\n", n, len(earlier))
	if l := t.in.next(ctx, "[y/N] "); l.err != nil || !isYes(l.text) {
		fmt.Fprintln(stderr(), "reel: the message is not part of the conversation")
		return nil, cmp.Or(ctx.Err(), error(printed{err}))
	}
	return append(append(system[:len(system):len(system)], earlier[n:]...), last), nil
}

// isYes reports whether text agrees.
func isYes(text string) bool {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "y", "yes":
		return true
	}
	return false
}

// split divides messages into the system message, if any, the last message, and those
// between them.
func split(messages []client.Message) (system, earlier []client.Message, last client.Message) {
	n := 0
	if messages[0].Role == "system" && len(messages) > 1 {
		n = 1
	}
	return messages[:n], messages[n : len(messages)-1], messages[len(messages)-1]
}

// oldestHalf returns how many messages are at least half of them, and leave a user's
// message first.
func oldestHalf(messages []client.Message) int {
	n := (len(messages) + 1) / 2
	for n < len(messages) && messages[n].Role != "user" {
		n++
	}
	return n
}
