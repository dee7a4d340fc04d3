// Package jinja interprets Jinja2 templates as transformers sets it up for chat templates. Its
// strings know which of their characters come from a request.
package jinja
