package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// cacheCommand returns the command that lists and drops the user's cached pages.
func (a *app) cacheCommand() *cobra.Command {
	show := a.cachedCommand("cache", "Show how much of your prompts is cached", true, (*client.Client).CachedOf)
	show.Long = "Show how much of your earlier prompts the generator keeps: keys and values, in pages\n" +
		"of some tokens, from which a later prompt that begins with the same tokens goes on.\n" +
		"\"reel cache drop\" drops them."
	drop := a.cachedCommand("drop", "Drop what is cached of your prompts", false, (*client.Client).DropCachedOf)
	drop.Long = "Drop what is cached of your earlier prompts, on the device and elsewhere. Pages of\n" +
		"requests that run stay. If the generator shares its cache between all users\n" +
		"(--cache-scope all), only its own user and root may drop it."
	show.AddCommand(drop)
	return show
}

// cachedCommand returns a command that asks with ask and prints the answer. With noWake it does
// not wake a sleeping generator, which holds no pages in memory. Only a running one can drop its pages in files.
func (a *app) cachedCommand(name, short string, noWake bool,
	ask func(c *client.Client, ctx context.Context, user string) (*client.Cached, error)) *cobra.Command {
	var asJSON bool
	var user string
	cmd := &cobra.Command{
		Use:   name,
		Short: short,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.dialWith(cmd.Context(), client.Options{NoWake: noWake})
			if errors.Is(err, client.ErrSleeping) {
				return showRecord(stdout(), client.Record(client.Options{Socket: a.socket}), asJSON, err)
			}
			if err != nil {
				return err
			}
			defer c.Close()
			cached, err := ask(c, cmd.Context(), user)
			if err != nil {
				return err
			}
			w := stdout()
			if asJSON {
				return closedPipe(writeJSON(w, cached))
			}
			return writeCached(w, cached)
		},
	}
	userFlag(cmd.Flags(), &user, "whose prompts they are, within your uid")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// writeCached prints cached pages for people.
func writeCached(w io.Writer, c *client.Cached) error {
	scope := map[string]string{
		protocol.ScopeUser: "your own prompts", protocol.ScopeAll: "the prompts of all users", protocol.ScopeOff: "off",
	}[c.Scope]
	rows := [][2]string{{"cached", scope}}
	if c.Dropped > 0 {
		rows = append(rows, [2]string{"dropped", plural(uint64(max(0, c.Dropped)), "page")})
	}
	for _, t := range c.Tiers {
		rows = append(rows, [2]string{t.Tier, fmt.Sprintf("%s, %s, %s",
			plural(uint64(max(0, t.Pages)), "page"), plural(uint64(max(0, t.Tokens)), "token"), size(t.Bytes))})
	}
	return writeRows(w, rows)
}
