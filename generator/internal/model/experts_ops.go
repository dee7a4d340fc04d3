package model

import "reel.internal/reel/kernels"

// The ops of a layer's experts. They read ids of experts on the device; their shapes do not depend on the ids.

func (p *pass) route(i int) kernels.Route {
	c, s, w := p.model.Config, p.memory, &p.model.layers[i]
	e, r := c.Experts, &w.router
	return kernels.Route{
		X: s.x, Norm: r.norm, Router: r.weights, Bias: r.bias, Choice: r.choice, ExpertScales: r.scales, Chosen: s.chosen,
		Groups: e.Groups, GroupsUsed: e.GroupsUsed, BestTwo: e.BestTwo, Scoring: e.Scoring, Normalise: e.Normalise,
		Scale: e.Scale, T: p.Rows, Hidden: c.Hidden, Eps: c.layerEps(), Workspace: s.routeWorkspace,
	}
}

func (p *pass) expertGateUp(i int) kernels.ExpertGateUp {
	c, s, w := p.model.Config, p.memory, &p.model.layers[i]
	return kernels.ExpertGateUp{
		X: s.x, Norm: w.router.expertsNorm, Gate: w.gate, Up: w.up, GateBias: w.router.gateBias, UpBias: w.router.upBias,
		Chosen: s.chosen, Out: s.own.inner, Activation: c.Activation, Limit: c.Experts.Limit, Eps: c.layerEps(),
		T: p.Rows, Class: p.Class,
		Workspace: s.expertsWork, HandsOver: p.expertsHandOver(i),
	}
}

func (p *pass) expertDown(i int) kernels.ExpertDown {
	s, w := p.memory, &p.model.layers[i]
	return kernels.ExpertDown{Down: w.down, Bias: w.router.downBias, In: s.inner, X: s.x, Chosen: s.chosen, T: p.Rows,
		Class: p.Class, Workspace: s.expertsWork, InputIsRounded: p.expertsHandOver(i)}
}

func (p *pass) layerExperts(i int) kernels.Experts {
	t := p.memory.tags
	return kernels.Experts{Route: p.route(i), GateUp: p.expertGateUp(i), Down: p.expertDown(i), Tags: p.layerTags(i).experts,
		Between: kernels.ExpertTags{Logits: t.logits, Choice: t.choice, Inner: t.inner}}
}

// experts launches the experts of rows. Of several ranks each computes a part of the gates and of the columns.
func (p *pass) experts(op kernels.Experts) {
	if p.model.Config.ranks() > 1 {
		op.GateUp, op.Down = p.expertParts(op.GateUp, op.Down)
		if !p.tags {
			p.launch(op.Route)  // chosen = the experts of each row, and their weights
			p.launch(op.GateUp) // inner = silu(Wgate·rmsnorm(x)) ⊙ Wup·rmsnorm(x), of each chosen expert
			p.launch(op.Down)   // x += Σ weight · Wdown·inner
			return
		}
	}
	p.launch(op)
}

// expertsHandOver reports whether the gates of layer i may leave their results rounded for the down projection.
// Exchanges between ranks carry rows of float32.
func (p *pass) expertsHandOver(i int) bool {
	w := &p.model.layers[i]
	return p.model.Config.ranks() == 1 && kernels.ExpertsHandOver(w.gate, w.up, w.down)
}

// sharedGateUp and sharedDownProjection are the feed-forward of all rows beside the experts. The first one comes before
// the results of experts are added to the rows, since both read them.
func (p *pass) sharedGateUp(i int) kernels.GateUp {
	op, w := p.gateUp(i, kernels.Handover{}), &p.model.layers[i].shared
	op.Gate, op.Up, op.Out = w.gate, w.up, p.memory.own.sharedInner
	return op
}

func (p *pass) sharedDownProjection(i int) kernels.Projection {
	op := p.downProjection(i, kernels.Handover{})
	op.W, op.In = p.model.layers[i].shared.down, p.memory.sharedInner
	return op
}

// sampledExperts launches the experts of the sampled rows of a prefill pass, with ops of the decode class.
func (p *pass) sampledExperts(i int) {
	s := p.memory
	op, T := p.layerExperts(i), p.Samples
	op.Route.X, op.Route.RowIndex, op.Route.T = s.sampledX, s.sampledIndex, T
	op.GateUp.X, op.GateUp.RowIndex, op.GateUp.T, op.GateUp.Class = s.sampledX, s.sampledIndex, T, kernels.Decode
	op.Down.X, op.Down.RowIndex, op.Down.T, op.Down.Class = s.sampledX, s.sampledIndex, T, kernels.Decode
	if s.sharedInner.Bytes() == 0 {
		p.experts(op)
		return
	}
	w, sharedGateUp, sharedDown := &p.model.layers[i].shared, p.sampledGateUp(i), p.sampledDownProjection(i)
	sharedGateUp.Gate, sharedGateUp.Up, sharedGateUp.Out = w.gate, w.up, s.own.sharedInner
	sharedDown.W, sharedDown.In = w.down, s.sharedInner
	p.launch(sharedGateUp)
	if p.model.Config.expertsBeside() {
		p.expertsBeside(i, sharedDown, op)
		return
	}
	p.experts(op)
	p.sharedDown(i, sharedDown, T)
}

// expertsBeside launches the down projection of the feed-forward beside experts, the experts, and what adds the normed
// sum of both, each normed too, to the residual stream.
func (p *pass) expertsBeside(i int, down kernels.Projection, experts kernels.Experts) {
	c, s, w := p.model.Config, p.memory, &p.model.layers[i]
	x, T := down.X, down.T
	down.X, down.Store, experts.Down.X, experts.Down.Store = s.branch, true, s.beside[0], true
	p.launch(down)
	p.experts(experts)
	add := kernels.AddNorm{X: s.beside[1], RowIndex: down.RowIndex, T: T, Cols: c.Hidden, Eps: c.RMSNormEps}
	shared, rest, sum := add, add, add
	shared.Branch, shared.Norm, shared.Store = s.branch, w.router.afterShared, true
	shared.Eps /= c.innerDivisor() * c.innerDivisor()
	rest.Branch, rest.Norm = s.beside[0], w.router.afterExperts
	sum.Branch, sum.Norm, sum.X, sum.Scale = s.beside[1], w.afterFeedForward, x, p.scaleAfter(i, kernels.DownProjection)
	p.launch(shared)
	p.launch(rest)
	p.launch(sum)
}
