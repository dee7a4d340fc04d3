// The layout of kernels' arguments in Go, as args_test.go writes it. The Makefile includes this
// file after all kernels, so that a field that moved stops the build.
#pragma once
#include <cstddef>

#define REEL_SIZE(type, bytes) static_assert(sizeof(type) == bytes, "in Go it has " #bytes " bytes")
#define REEL_FIELD(type, field, at) static_assert(offsetof(type, field) == at, "in Go it is at " #at)

static_assert(PLACED_ROWS == 64, "in Go: placedRows");

REEL_SIZE(AcceptArgs, 88);
REEL_FIELD(AcceptArgs, slot, 0);
REEL_FIELD(AcceptArgs, position, 8);
REEL_FIELD(AcceptArgs, token, 16);
REEL_FIELD(AcceptArgs, sample, 24);
REEL_FIELD(AcceptArgs, drawn, 32);
REEL_FIELD(AcceptArgs, number, 40);
REEL_FIELD(AcceptArgs, last, 48);
REEL_FIELD(AcceptArgs, length, 56);
REEL_FIELD(AcceptArgs, results, 64);
REEL_FIELD(AcceptArgs, T, 72);
REEL_FIELD(AcceptArgs, queries, 76);
REEL_FIELD(AcceptArgs, ringSlots, 80);
REEL_FIELD(AcceptArgs, maxSamples, 84);

REEL_SIZE(Activations, 40);
REEL_FIELD(Activations, x, 0);
REEL_FIELD(Activations, norm, 8);
REEL_FIELD(Activations, rows, 16);
REEL_FIELD(Activations, cols, 24);
REEL_FIELD(Activations, n, 28);
REEL_FIELD(Activations, eps, 32);
REEL_FIELD(Activations, unused, 36);

REEL_SIZE(AddNormArgs, 48);
REEL_FIELD(AddNormArgs, branch, 0);
REEL_FIELD(AddNormArgs, norm, 8);
REEL_FIELD(AddNormArgs, rows, 16);
REEL_FIELD(AddNormArgs, x, 24);
REEL_FIELD(AddNormArgs, cols, 32);
REEL_FIELD(AddNormArgs, eps, 36);
REEL_FIELD(AddNormArgs, scale, 40);
REEL_FIELD(AddNormArgs, stores, 44);

REEL_SIZE(PerLayerGateArgs, 48);
REEL_FIELD(PerLayerGateArgs, x, 0);
REEL_FIELD(PerLayerGateArgs, inputs, 8);
REEL_FIELD(PerLayerGateArgs, rows, 16);
REEL_FIELD(PerLayerGateArgs, pitch, 24);
REEL_FIELD(PerLayerGateArgs, cols, 32);
REEL_FIELD(PerLayerGateArgs, scale, 36);
REEL_FIELD(PerLayerGateArgs, linear, 40);
REEL_FIELD(PerLayerGateArgs, cubic, 44);

REEL_SIZE(Ahead, 48);
REEL_FIELD(Ahead, at, 0);
REEL_FIELD(Ahead, apart, 24);
REEL_FIELD(Ahead, bytes, 36);

REEL_SIZE(AttendArgs, 200);
REEL_FIELD(AttendArgs, q, 0);
REEL_FIELD(AttendArgs, pool, 8);
REEL_FIELD(AttendArgs, out, 16);
REEL_FIELD(AttendArgs, partial, 24);
REEL_FIELD(AttendArgs, arrived, 32);
REEL_FIELD(AttendArgs, slot, 40);
REEL_FIELD(AttendArgs, position, 48);
REEL_FIELD(AttendArgs, blockTable, 56);
REEL_FIELD(AttendArgs, T, 64);
REEL_FIELD(AttendArgs, layer, 68);
REEL_FIELD(AttendArgs, layers, 72);
REEL_FIELD(AttendArgs, heads, 76);
REEL_FIELD(AttendArgs, kvHeads, 80);
REEL_FIELD(AttendArgs, dim, 84);
REEL_FIELD(AttendArgs, pages, 88);
REEL_FIELD(AttendArgs, pageShift, 92);
REEL_FIELD(AttendArgs, splits, 96);
REEL_FIELD(AttendArgs, scale, 100);
REEL_FIELD(AttendArgs, window, 104);
REEL_FIELD(AttendArgs, join, 108);
REEL_FIELD(AttendArgs, visible, 112);
REEL_FIELD(AttendArgs, f16, 116);
REEL_FIELD(AttendArgs, rounded, 120);
REEL_FIELD(AttendArgs, tokens, 128);
REEL_FIELD(AttendArgs, group, 132);
REEL_FIELD(AttendArgs, afterQKV, 136);
REEL_FIELD(AttendArgs, shareMerge, 140);
REEL_FIELD(AttendArgs, parts, 144);
REEL_FIELD(AttendArgs, beside, 148);
REEL_FIELD(AttendArgs, ahead, 152);

REEL_SIZE(AttendHandingArgs<AttendArgs>, 240);
REEL_FIELD(AttendHandingArgs<AttendArgs>, of, 0);
REEL_FIELD(AttendHandingArgs<AttendArgs>, to, 200);

REEL_SIZE(AttendHandingArgs<AttendLogitsArgs<AttendArgs>>, 256);
REEL_FIELD(AttendHandingArgs<AttendLogitsArgs<AttendArgs>>, of, 0);
REEL_FIELD(AttendHandingArgs<AttendLogitsArgs<AttendArgs>>, to, 216);

REEL_SIZE(AttendLatentArgs, 168);
REEL_FIELD(AttendLatentArgs, q, 0);
REEL_FIELD(AttendLatentArgs, pool, 8);
REEL_FIELD(AttendLatentArgs, out, 16);
REEL_FIELD(AttendLatentArgs, partial, 24);
REEL_FIELD(AttendLatentArgs, arrived, 32);
REEL_FIELD(AttendLatentArgs, slot, 40);
REEL_FIELD(AttendLatentArgs, position, 48);
REEL_FIELD(AttendLatentArgs, blockTable, 56);
REEL_FIELD(AttendLatentArgs, pageBytes, 64);
REEL_FIELD(AttendLatentArgs, layerStart, 72);
REEL_FIELD(AttendLatentArgs, T, 80);
REEL_FIELD(AttendLatentArgs, heads, 84);
REEL_FIELD(AttendLatentArgs, dim, 88);
REEL_FIELD(AttendLatentArgs, values, 92);
REEL_FIELD(AttendLatentArgs, pages, 96);
REEL_FIELD(AttendLatentArgs, pageShift, 100);
REEL_FIELD(AttendLatentArgs, splits, 104);
REEL_FIELD(AttendLatentArgs, visible, 108);
REEL_FIELD(AttendLatentArgs, logits, 112);
REEL_FIELD(AttendLatentArgs, scale, 128);
REEL_FIELD(AttendLatentArgs, rows, 132);
REEL_FIELD(AttendLatentArgs, stages, 136);
REEL_FIELD(AttendLatentArgs, shareMerge, 140);
REEL_FIELD(AttendLatentArgs, group, 144);
REEL_FIELD(AttendLatentArgs, earliest, 148);
REEL_FIELD(AttendLatentArgs, valuesStart, 152);
REEL_FIELD(AttendLatentArgs, together, 160);
REEL_FIELD(AttendLatentArgs, unused, 164);

REEL_SIZE(AttendSpreadArgs<AttendArgs>, 336);
REEL_FIELD(AttendSpreadArgs<AttendArgs>, of, 0);
REEL_FIELD(AttendSpreadArgs<AttendArgs>, to, 200);

REEL_SIZE(BeginArgs, 24);
REEL_FIELD(BeginArgs, x, 0);
REEL_FIELD(BeginArgs, bias, 8);
REEL_FIELD(BeginArgs, cols, 16);
REEL_FIELD(BeginArgs, stores, 20);

REEL_SIZE(AttendLogits, 16);
REEL_FIELD(AttendLogits, sinks, 0);
REEL_FIELD(AttendLogits, cap, 8);
REEL_FIELD(AttendLogits, steep, 12);

REEL_SIZE(AttendLogitsArgs<AttendArgs>, 216);
REEL_FIELD(AttendLogitsArgs<AttendArgs>, of, 0);
REEL_FIELD(AttendLogitsArgs<AttendArgs>, logits, 200);

REEL_SIZE(ChosenArgs, 48);
REEL_FIELD(ChosenArgs, weights, 0);
REEL_FIELD(ChosenArgs, count, 8);
REEL_FIELD(ChosenArgs, expert, 16);
REEL_FIELD(ChosenArgs, place, 24);
REEL_FIELD(ChosenArgs, row, 32);
REEL_FIELD(ChosenArgs, segments, 40);
REEL_FIELD(ChosenArgs, places, 44);

REEL_SIZE(CodesArgs<ExpertDown>, 216);
REEL_FIELD(CodesArgs<ExpertDown>, op, 0);
REEL_FIELD(CodesArgs<ExpertDown>, rows, 136);
REEL_FIELD(CodesArgs<ExpertDown>, scales, 144);
REEL_FIELD(CodesArgs<ExpertDown>, sums, 152);
REEL_FIELD(CodesArgs<ExpertDown>, handover, 160);
REEL_FIELD(CodesArgs<ExpertDown>, first, 200);
REEL_FIELD(CodesArgs<ExpertDown>, units, 204);
REEL_FIELD(CodesArgs<ExpertDown>, at_once, 208);
REEL_FIELD(CodesArgs<ExpertDown>, stages, 212);

REEL_SIZE(CodesArgs<ExpertGateUp>, 224);
REEL_FIELD(CodesArgs<ExpertGateUp>, op, 0);
REEL_FIELD(CodesArgs<ExpertGateUp>, rows, 144);
REEL_FIELD(CodesArgs<ExpertGateUp>, scales, 152);
REEL_FIELD(CodesArgs<ExpertGateUp>, sums, 160);
REEL_FIELD(CodesArgs<ExpertGateUp>, handover, 168);
REEL_FIELD(CodesArgs<ExpertGateUp>, first, 208);
REEL_FIELD(CodesArgs<ExpertGateUp>, units, 212);
REEL_FIELD(CodesArgs<ExpertGateUp>, at_once, 216);
REEL_FIELD(CodesArgs<ExpertGateUp>, stages, 220);

REEL_SIZE(CodesArgs<GateUp>, 160);
REEL_FIELD(CodesArgs<GateUp>, op, 0);
REEL_FIELD(CodesArgs<GateUp>, rows, 80);
REEL_FIELD(CodesArgs<GateUp>, scales, 88);
REEL_FIELD(CodesArgs<GateUp>, sums, 96);
REEL_FIELD(CodesArgs<GateUp>, handover, 104);
REEL_FIELD(CodesArgs<GateUp>, first, 144);
REEL_FIELD(CodesArgs<GateUp>, units, 148);
REEL_FIELD(CodesArgs<GateUp>, at_once, 152);
REEL_FIELD(CodesArgs<GateUp>, stages, 156);

REEL_SIZE(CodesArgs<Head>, 144);
REEL_FIELD(CodesArgs<Head>, op, 0);
REEL_FIELD(CodesArgs<Head>, rows, 64);
REEL_FIELD(CodesArgs<Head>, scales, 72);
REEL_FIELD(CodesArgs<Head>, sums, 80);
REEL_FIELD(CodesArgs<Head>, handover, 88);
REEL_FIELD(CodesArgs<Head>, first, 128);
REEL_FIELD(CodesArgs<Head>, units, 132);
REEL_FIELD(CodesArgs<Head>, at_once, 136);
REEL_FIELD(CodesArgs<Head>, stages, 140);

REEL_SIZE(CodesArgs<Projection>, 160);
REEL_FIELD(CodesArgs<Projection>, op, 0);
REEL_FIELD(CodesArgs<Projection>, rows, 80);
REEL_FIELD(CodesArgs<Projection>, scales, 88);
REEL_FIELD(CodesArgs<Projection>, sums, 96);
REEL_FIELD(CodesArgs<Projection>, handover, 104);
REEL_FIELD(CodesArgs<Projection>, first, 144);
REEL_FIELD(CodesArgs<Projection>, units, 148);
REEL_FIELD(CodesArgs<Projection>, at_once, 152);
REEL_FIELD(CodesArgs<Projection>, stages, 156);

REEL_SIZE(CodesArgs<Tagged<GateUp>>, 200);
REEL_FIELD(CodesArgs<Tagged<GateUp>>, op, 0);
REEL_FIELD(CodesArgs<Tagged<GateUp>>, rows, 120);
REEL_FIELD(CodesArgs<Tagged<GateUp>>, scales, 128);
REEL_FIELD(CodesArgs<Tagged<GateUp>>, sums, 136);
REEL_FIELD(CodesArgs<Tagged<GateUp>>, handover, 144);
REEL_FIELD(CodesArgs<Tagged<GateUp>>, first, 184);
REEL_FIELD(CodesArgs<Tagged<GateUp>>, units, 188);
REEL_FIELD(CodesArgs<Tagged<GateUp>>, at_once, 192);
REEL_FIELD(CodesArgs<Tagged<GateUp>>, stages, 196);

REEL_SIZE(CodesArgs<Tagged<Head>>, 184);
REEL_FIELD(CodesArgs<Tagged<Head>>, op, 0);
REEL_FIELD(CodesArgs<Tagged<Head>>, rows, 104);
REEL_FIELD(CodesArgs<Tagged<Head>>, scales, 112);
REEL_FIELD(CodesArgs<Tagged<Head>>, sums, 120);
REEL_FIELD(CodesArgs<Tagged<Head>>, handover, 128);
REEL_FIELD(CodesArgs<Tagged<Head>>, first, 168);
REEL_FIELD(CodesArgs<Tagged<Head>>, units, 172);
REEL_FIELD(CodesArgs<Tagged<Head>>, at_once, 176);
REEL_FIELD(CodesArgs<Tagged<Head>>, stages, 180);

REEL_SIZE(CodesArgs<Tagged<Projection>>, 200);
REEL_FIELD(CodesArgs<Tagged<Projection>>, op, 0);
REEL_FIELD(CodesArgs<Tagged<Projection>>, rows, 120);
REEL_FIELD(CodesArgs<Tagged<Projection>>, scales, 128);
REEL_FIELD(CodesArgs<Tagged<Projection>>, sums, 136);
REEL_FIELD(CodesArgs<Tagged<Projection>>, handover, 144);
REEL_FIELD(CodesArgs<Tagged<Projection>>, first, 184);
REEL_FIELD(CodesArgs<Tagged<Projection>>, units, 188);
REEL_FIELD(CodesArgs<Tagged<Projection>>, at_once, 192);
REEL_FIELD(CodesArgs<Tagged<Projection>>, stages, 196);

REEL_SIZE(CodesArgs<Tagged<QKVApart>>, 264);
REEL_FIELD(CodesArgs<Tagged<QKVApart>>, op, 0);
REEL_FIELD(CodesArgs<Tagged<QKVApart>>, rows, 184);
REEL_FIELD(CodesArgs<Tagged<QKVApart>>, scales, 192);
REEL_FIELD(CodesArgs<Tagged<QKVApart>>, sums, 200);
REEL_FIELD(CodesArgs<Tagged<QKVApart>>, handover, 208);
REEL_FIELD(CodesArgs<Tagged<QKVApart>>, first, 248);
REEL_FIELD(CodesArgs<Tagged<QKVApart>>, units, 252);
REEL_FIELD(CodesArgs<Tagged<QKVApart>>, at_once, 256);
REEL_FIELD(CodesArgs<Tagged<QKVApart>>, stages, 260);

REEL_SIZE(CodesHandover, 40);
REEL_FIELD(CodesHandover, rows, 0);
REEL_FIELD(CodesHandover, sums, 8);
REEL_FIELD(CodesHandover, scales, 16);
REEL_FIELD(CodesHandover, norm, 24);
REEL_FIELD(CodesHandover, columns, 32);
REEL_FIELD(CodesHandover, n, 36);
REEL_FIELD(CodesHandover, at_once, 38);

REEL_SIZE(CodesArgs<QKV>, 224);
REEL_FIELD(CodesArgs<QKV>, op, 0);
REEL_FIELD(CodesArgs<QKV>, rows, 144);
REEL_FIELD(CodesArgs<QKV>, scales, 152);
REEL_FIELD(CodesArgs<QKV>, sums, 160);
REEL_FIELD(CodesArgs<QKV>, handover, 168);
REEL_FIELD(CodesArgs<QKV>, first, 208);
REEL_FIELD(CodesArgs<QKV>, units, 212);
REEL_FIELD(CodesArgs<QKV>, at_once, 216);
REEL_FIELD(CodesArgs<QKV>, stages, 220);

REEL_SIZE(ChoiceArgs, 184);
REEL_FIELD(ChoiceArgs, of, 0);
REEL_FIELD(ChoiceArgs, logits, 168);
REEL_FIELD(ChoiceArgs, choice, 176);

REEL_SIZE(ChooseArgs, 232);
REEL_FIELD(ChooseArgs, route, 0);
REEL_FIELD(ChooseArgs, group, 168);

REEL_SIZE(CopyPageArgs, 24);
REEL_FIELD(CopyPageArgs, from, 0);
REEL_FIELD(CopyPageArgs, to, 8);
REEL_FIELD(CopyPageArgs, words, 16);

REEL_SIZE(CaptureArgs, 48);
REEL_FIELD(CaptureArgs, x, 0);
REEL_FIELD(CaptureArgs, norm, 8);
REEL_FIELD(CaptureArgs, features, 16);
REEL_FIELD(CaptureArgs, zero, 24);
REEL_FIELD(CaptureArgs, cols, 32);
REEL_FIELD(CaptureArgs, width, 36);
REEL_FIELD(CaptureArgs, zeroCols, 40);
REEL_FIELD(CaptureArgs, eps, 44);

REEL_SIZE(DraftRowsArgs, 104);
REEL_FIELD(DraftRowsArgs, ofSlot, 0);
REEL_FIELD(DraftRowsArgs, ofPosition, 8);
REEL_FIELD(DraftRowsArgs, ofToken, 16);
REEL_FIELD(DraftRowsArgs, ofSample, 24);
REEL_FIELD(DraftRowsArgs, history, 32);
REEL_FIELD(DraftRowsArgs, params, 40);
REEL_FIELD(DraftRowsArgs, slot, 48);
REEL_FIELD(DraftRowsArgs, position, 56);
REEL_FIELD(DraftRowsArgs, token, 64);
REEL_FIELD(DraftRowsArgs, sample, 72);
REEL_FIELD(DraftRowsArgs, rows, 80);
REEL_FIELD(DraftRowsArgs, queries, 84);
REEL_FIELD(DraftRowsArgs, draft, 88);
REEL_FIELD(DraftRowsArgs, vocab, 92);
REEL_FIELD(DraftRowsArgs, context, 96);
REEL_FIELD(DraftRowsArgs, single, 100);

REEL_SIZE(JoinArgs, 112);
REEL_FIELD(JoinArgs, embedded, 0);
REEL_FIELD(JoinArgs, features, 8);
REEL_FIELD(JoinArgs, norm, 16);
REEL_FIELD(JoinArgs, output, 24);
REEL_FIELD(JoinArgs, x, 32);
REEL_FIELD(JoinArgs, out, 40);
REEL_FIELD(JoinArgs, slot, 48);
REEL_FIELD(JoinArgs, position, 56);
REEL_FIELD(JoinArgs, blockTable, 64);
REEL_FIELD(JoinArgs, kept, 72);
REEL_FIELD(JoinArgs, pageStride, 80);
REEL_FIELD(JoinArgs, cols, 88);
REEL_FIELD(JoinArgs, pages, 92);
REEL_FIELD(JoinArgs, pageTokens, 96);
REEL_FIELD(JoinArgs, own, 100);
REEL_FIELD(JoinArgs, normed, 104);
REEL_FIELD(JoinArgs, eps, 108);

REEL_SIZE(KeepArgs, 72);
REEL_FIELD(KeepArgs, x, 0);
REEL_FIELD(KeepArgs, slot, 8);
REEL_FIELD(KeepArgs, position, 16);
REEL_FIELD(KeepArgs, length, 24);
REEL_FIELD(KeepArgs, blockTable, 32);
REEL_FIELD(KeepArgs, kept, 40);
REEL_FIELD(KeepArgs, pageStride, 48);
REEL_FIELD(KeepArgs, cols, 56);
REEL_FIELD(KeepArgs, pages, 60);
REEL_FIELD(KeepArgs, pageTokens, 64);
REEL_FIELD(KeepArgs, trash, 68);

REEL_SIZE(RecentArgs, 80);
REEL_FIELD(RecentArgs, slot, 0);
REEL_FIELD(RecentArgs, position, 8);
REEL_FIELD(RecentArgs, blockTable, 16);
REEL_FIELD(RecentArgs, view, 24);
REEL_FIELD(RecentArgs, viewSlot, 32);
REEL_FIELD(RecentArgs, viewPosition, 40);
REEL_FIELD(RecentArgs, queries, 48);
REEL_FIELD(RecentArgs, pages, 52);
REEL_FIELD(RecentArgs, viewPages, 56);
REEL_FIELD(RecentArgs, pageTokens, 60);
REEL_FIELD(RecentArgs, first, 64);
REEL_FIELD(RecentArgs, window, 68);
REEL_FIELD(RecentArgs, trash, 72);
REEL_FIELD(RecentArgs, viewTrash, 76);

REEL_SIZE(EmbedArgs, 40);
REEL_FIELD(EmbedArgs, table, 0);
REEL_FIELD(EmbedArgs, token, 8);
REEL_FIELD(EmbedArgs, x, 16);
REEL_FIELD(EmbedArgs, vocab, 24);
REEL_FIELD(EmbedArgs, hidden, 28);
REEL_FIELD(EmbedArgs, scale, 32);
REEL_FIELD(EmbedArgs, unused, 36);

REEL_SIZE(ExchangeArgs, 192);
REEL_FIELD(ExchangeArgs, part, 0);
REEL_FIELD(ExchangeArgs, x, 8);
REEL_FIELD(ExchangeArgs, bias, 16);
REEL_FIELD(ExchangeArgs, all, 24);
REEL_FIELD(ExchangeArgs, flags, 88);
REEL_FIELD(ExchangeArgs, epochs, 152);
REEL_FIELD(ExchangeArgs, progress, 160);
REEL_FIELD(ExchangeArgs, rows, 168);
REEL_FIELD(ExchangeArgs, width, 172);
REEL_FIELD(ExchangeArgs, part_cols, 176);
REEL_FIELD(ExchangeArgs, ranks, 180);
REEL_FIELD(ExchangeArgs, rank, 184);
REEL_FIELD(ExchangeArgs, stride, 188);

REEL_SIZE(ExchangePacketsArgs, 152);
REEL_FIELD(ExchangePacketsArgs, part, 0);
REEL_FIELD(ExchangePacketsArgs, to, 8);
REEL_FIELD(ExchangePacketsArgs, stride, 144);
REEL_FIELD(ExchangePacketsArgs, unused, 148);

REEL_SIZE(ExpertDownArgs, 136);
REEL_FIELD(ExpertDownArgs, w, 0);
REEL_FIELD(ExpertDownArgs, bias, 8);
REEL_FIELD(ExpertDownArgs, in, 16);
REEL_FIELD(ExpertDownArgs, results, 56);
REEL_FIELD(ExpertDownArgs, x, 64);
REEL_FIELD(ExpertDownArgs, chosen, 72);
REEL_FIELD(ExpertDownArgs, hidden, 120);
REEL_FIELD(ExpertDownArgs, used, 124);
REEL_FIELD(ExpertDownArgs, stores, 128);
REEL_FIELD(ExpertDownArgs, unused, 132);

REEL_SIZE(ExpertGateUpArgs, 144);
REEL_FIELD(ExpertGateUpArgs, gate, 0);
REEL_FIELD(ExpertGateUpArgs, up, 8);
REEL_FIELD(ExpertGateUpArgs, gateBias, 16);
REEL_FIELD(ExpertGateUpArgs, upBias, 24);
REEL_FIELD(ExpertGateUpArgs, in, 32);
REEL_FIELD(ExpertGateUpArgs, out, 72);
REEL_FIELD(ExpertGateUpArgs, chosen, 80);
REEL_FIELD(ExpertGateUpArgs, linear, 128);
REEL_FIELD(ExpertGateUpArgs, limit, 132);
REEL_FIELD(ExpertGateUpArgs, inner, 136);
REEL_FIELD(ExpertGateUpArgs, cubic, 140);

REEL_SIZE(ExpertSumArgs, 40);
REEL_FIELD(ExpertSumArgs, results, 0);
REEL_FIELD(ExpertSumArgs, rows, 8);
REEL_FIELD(ExpertSumArgs, x, 16);
REEL_FIELD(ExpertSumArgs, cols, 24);
REEL_FIELD(ExpertSumArgs, used, 28);
REEL_FIELD(ExpertSumArgs, stores, 32);
REEL_FIELD(ExpertSumArgs, unused, 36);

REEL_SIZE(ExpertSumSpreadArgs, 176);
REEL_FIELD(ExpertSumSpreadArgs, sum, 0);
REEL_FIELD(ExpertSumSpreadArgs, to, 40);

REEL_SIZE(FillArgs, 24);
REEL_FIELD(FillArgs, data, 0);
REEL_FIELD(FillArgs, n, 8);
REEL_FIELD(FillArgs, value, 16);
REEL_FIELD(FillArgs, pad, 20);

REEL_SIZE(EmbedTaggedArgs, 80);
REEL_FIELD(EmbedTaggedArgs, of, 0);
REEL_FIELD(EmbedTaggedArgs, tags, 40);

REEL_SIZE(GateUpArgs, 80);
REEL_FIELD(GateUpArgs, gate, 0);
REEL_FIELD(GateUpArgs, up, 8);
REEL_FIELD(GateUpArgs, in, 16);
REEL_FIELD(GateUpArgs, out, 56);
REEL_FIELD(GateUpArgs, linear, 64);
REEL_FIELD(GateUpArgs, cubic, 68);
REEL_FIELD(GateUpArgs, inner, 72);
REEL_FIELD(GateUpArgs, scale, 76);

REEL_SIZE(GatherArgs, 40);
REEL_FIELD(GatherArgs, x, 0);
REEL_FIELD(GatherArgs, sample, 8);
REEL_FIELD(GatherArgs, out, 16);
REEL_FIELD(GatherArgs, index, 24);
REEL_FIELD(GatherArgs, cols, 32);
REEL_FIELD(GatherArgs, unused, 36);

REEL_SIZE(GivenArgs, 72);
REEL_FIELD(GivenArgs, slot, 0);
REEL_FIELD(GivenArgs, position, 8);
REEL_FIELD(GivenArgs, tokens, 16);
REEL_FIELD(GivenArgs, token, 24);
REEL_FIELD(GivenArgs, history, 32);
REEL_FIELD(GivenArgs, masked, 40);
REEL_FIELD(GivenArgs, T, 48);
REEL_FIELD(GivenArgs, queries, 52);
REEL_FIELD(GivenArgs, context, 56);
REEL_FIELD(GivenArgs, trash, 60);
REEL_FIELD(GivenArgs, stride, 64);
REEL_FIELD(GivenArgs, unused, 68);

REEL_SIZE(GroupPlacesArgs, 48);
REEL_FIELD(GroupPlacesArgs, ids, 0);
REEL_FIELD(GroupPlacesArgs, count, 8);
REEL_FIELD(GroupPlacesArgs, tiles, 16);
REEL_FIELD(GroupPlacesArgs, place, 24);
REEL_FIELD(GroupPlacesArgs, slot, 32);
REEL_FIELD(GroupPlacesArgs, places, 40);
REEL_FIELD(GroupPlacesArgs, most, 44);

REEL_SIZE(GroupedArgs<GroupedDown>, 104);
REEL_FIELD(GroupedArgs<GroupedDown>, op, 0);
REEL_FIELD(GroupedArgs<GroupedDown>, rows, 40);
REEL_FIELD(GroupedArgs<GroupedDown>, scales, 48);
REEL_FIELD(GroupedArgs<GroupedDown>, places, 56);
REEL_FIELD(GroupedArgs<GroupedDown>, kBlocks, 96);
REEL_FIELD(GroupedArgs<GroupedDown>, outputTiles, 100);

REEL_SIZE(GroupedArgs<GroupedGateUp>, 136);
REEL_FIELD(GroupedArgs<GroupedGateUp>, op, 0);
REEL_FIELD(GroupedArgs<GroupedGateUp>, rows, 72);
REEL_FIELD(GroupedArgs<GroupedGateUp>, scales, 80);
REEL_FIELD(GroupedArgs<GroupedGateUp>, places, 88);
REEL_FIELD(GroupedArgs<GroupedGateUp>, kBlocks, 128);
REEL_FIELD(GroupedArgs<GroupedGateUp>, outputTiles, 132);

REEL_SIZE(GroupedDownArgs, 40);
REEL_FIELD(GroupedDownArgs, w, 0);
REEL_FIELD(GroupedDownArgs, bias, 8);
REEL_FIELD(GroupedDownArgs, weights, 16);
REEL_FIELD(GroupedDownArgs, results, 24);
REEL_FIELD(GroupedDownArgs, hidden, 32);
REEL_FIELD(GroupedDownArgs, unused, 36);

REEL_SIZE(GroupedGateUpArgs, 72);
REEL_FIELD(GroupedGateUpArgs, gate, 0);
REEL_FIELD(GroupedGateUpArgs, up, 8);
REEL_FIELD(GroupedGateUpArgs, gateBias, 16);
REEL_FIELD(GroupedGateUpArgs, upBias, 24);
REEL_FIELD(GroupedGateUpArgs, rounded, 32);
REEL_FIELD(GroupedGateUpArgs, out, 40);
REEL_FIELD(GroupedGateUpArgs, linear, 48);
REEL_FIELD(GroupedGateUpArgs, limit, 52);
REEL_FIELD(GroupedGateUpArgs, inner, 56);
REEL_FIELD(GroupedGateUpArgs, slots, 60);
REEL_FIELD(GroupedGateUpArgs, cubic, 64);
REEL_FIELD(GroupedGateUpArgs, unused, 68);

REEL_SIZE(GroupArgs, 64);
REEL_FIELD(GroupArgs, ids, 0);
REEL_FIELD(GroupArgs, rows, 8);
REEL_FIELD(GroupArgs, count, 16);
REEL_FIELD(GroupArgs, expert, 24);
REEL_FIELD(GroupArgs, place, 32);
REEL_FIELD(GroupArgs, row, 40);
REEL_FIELD(GroupArgs, T, 48);
REEL_FIELD(GroupArgs, used, 52);
REEL_FIELD(GroupArgs, segments, 56);
REEL_FIELD(GroupArgs, each, 60);

REEL_SIZE(Handover, 32);
REEL_FIELD(Handover, rows, 0);
REEL_FIELD(Handover, norm, 8);
REEL_FIELD(Handover, squares, 16);
REEL_FIELD(Handover, tokens, 24);
REEL_FIELD(Handover, unused, 28);

REEL_SIZE(HeadArgs, 64);
REEL_FIELD(HeadArgs, w, 0);
REEL_FIELD(HeadArgs, in, 8);
REEL_FIELD(HeadArgs, logits, 48);
REEL_FIELD(HeadArgs, vocab, 56);
REEL_FIELD(HeadArgs, unused, 60);

REEL_SIZE(HeadProductArgs, 48);
REEL_FIELD(HeadProductArgs, w, 0);
REEL_FIELD(HeadProductArgs, in, 8);
REEL_FIELD(HeadProductArgs, out, 16);
REEL_FIELD(HeadProductArgs, T, 24);
REEL_FIELD(HeadProductArgs, heads, 28);
REEL_FIELD(HeadProductArgs, rows, 32);
REEL_FIELD(HeadProductArgs, cols, 36);
REEL_FIELD(HeadProductArgs, inStride, 40);
REEL_FIELD(HeadProductArgs, outStride, 44);

REEL_SIZE(LatentArgs, 120);
REEL_FIELD(LatentArgs, q, 0);
REEL_FIELD(LatentArgs, c, 8);
REEL_FIELD(LatentArgs, norm, 16);
REEL_FIELD(LatentArgs, table, 24);
REEL_FIELD(LatentArgs, slot, 32);
REEL_FIELD(LatentArgs, position, 40);
REEL_FIELD(LatentArgs, blockTable, 48);
REEL_FIELD(LatentArgs, pool, 56);
REEL_FIELD(LatentArgs, out, 64);
REEL_FIELD(LatentArgs, pageBytes, 72);
REEL_FIELD(LatentArgs, layerStart, 80);
REEL_FIELD(LatentArgs, heads, 88);
REEL_FIELD(LatentArgs, nope, 92);
REEL_FIELD(LatentArgs, rope, 96);
REEL_FIELD(LatentArgs, latent, 100);
REEL_FIELD(LatentArgs, pages, 104);
REEL_FIELD(LatentArgs, pageTokens, 108);
REEL_FIELD(LatentArgs, eps, 112);
REEL_FIELD(LatentArgs, unused, 116);

REEL_SIZE(LookupArgs, 56);
REEL_FIELD(LookupArgs, slot, 0);
REEL_FIELD(LookupArgs, position, 8);
REEL_FIELD(LookupArgs, token, 16);
REEL_FIELD(LookupArgs, history, 24);
REEL_FIELD(LookupArgs, masked, 32);
REEL_FIELD(LookupArgs, queries, 40);
REEL_FIELD(LookupArgs, context, 44);
REEL_FIELD(LookupArgs, trash, 48);
REEL_FIELD(LookupArgs, stride, 52);

REEL_SIZE(ManyArgs<GateUp>, 776);
REEL_FIELD(ManyArgs<GateUp>, op, 0);
REEL_FIELD(ManyArgs<GateUp>, rounded, 80);
REEL_FIELD(ManyArgs<GateUp>, handover, 104);
REEL_FIELD(ManyArgs<GateUp>, sums, 136);
REEL_FIELD(ManyArgs<GateUp>, arrivals, 144);
REEL_FIELD(ManyArgs<GateUp>, plan, 152);
REEL_FIELD(ManyArgs<GateUp>, ahead, 728);

REEL_SIZE(ManyArgs<Head>, 760);
REEL_FIELD(ManyArgs<Head>, op, 0);
REEL_FIELD(ManyArgs<Head>, rounded, 64);
REEL_FIELD(ManyArgs<Head>, handover, 88);
REEL_FIELD(ManyArgs<Head>, sums, 120);
REEL_FIELD(ManyArgs<Head>, arrivals, 128);
REEL_FIELD(ManyArgs<Head>, plan, 136);
REEL_FIELD(ManyArgs<Head>, ahead, 712);

REEL_SIZE(ManyArgs<Projection>, 776);
REEL_FIELD(ManyArgs<Projection>, op, 0);
REEL_FIELD(ManyArgs<Projection>, rounded, 80);
REEL_FIELD(ManyArgs<Projection>, handover, 104);
REEL_FIELD(ManyArgs<Projection>, sums, 136);
REEL_FIELD(ManyArgs<Projection>, arrivals, 144);
REEL_FIELD(ManyArgs<Projection>, plan, 152);
REEL_FIELD(ManyArgs<Projection>, ahead, 728);

REEL_SIZE(ManyArgs<QKV>, 840);
REEL_FIELD(ManyArgs<QKV>, op, 0);
REEL_FIELD(ManyArgs<QKV>, rounded, 144);
REEL_FIELD(ManyArgs<QKV>, handover, 168);
REEL_FIELD(ManyArgs<QKV>, sums, 200);
REEL_FIELD(ManyArgs<QKV>, arrivals, 208);
REEL_FIELD(ManyArgs<QKV>, plan, 216);
REEL_FIELD(ManyArgs<QKV>, ahead, 792);

REEL_SIZE(MixedArgs<GateUp>, 1504);
REEL_FIELD(MixedArgs<GateUp>, prompts, 0);
REEL_FIELD(MixedArgs<GateUp>, generated, 728);

REEL_SIZE(MixedArgs<Projection>, 1504);
REEL_FIELD(MixedArgs<Projection>, prompts, 0);
REEL_FIELD(MixedArgs<Projection>, generated, 728);

REEL_SIZE(MixedArgs<QKV>, 1632);
REEL_FIELD(MixedArgs<QKV>, prompts, 0);
REEL_FIELD(MixedArgs<QKV>, generated, 792);

REEL_SIZE(PlacesArgs, 40);
REEL_FIELD(PlacesArgs, count, 0);
REEL_FIELD(PlacesArgs, tiles, 8);
REEL_FIELD(PlacesArgs, place, 16);
REEL_FIELD(PlacesArgs, slot, 24);
REEL_FIELD(PlacesArgs, slots, 32);
REEL_FIELD(PlacesArgs, unused, 36);

REEL_SIZE(PackCodesArgs, 24);
REEL_FIELD(PackCodesArgs, src, 0);
REEL_FIELD(PackCodesArgs, dst, 8);
REEL_FIELD(PackCodesArgs, rows, 16);
REEL_FIELD(PackCodesArgs, cols, 20);

REEL_SIZE(PackArgs, 24);
REEL_FIELD(PackArgs, src, 0);
REEL_FIELD(PackArgs, dst, 8);
REEL_FIELD(PackArgs, rows, 16);
REEL_FIELD(PackArgs, cols, 20);

REEL_SIZE(Packets, 96);
REEL_FIELD(Packets, inbox, 0);
REEL_FIELD(Packets, count, 64);
REEL_FIELD(Packets, progress, 72);
REEL_FIELD(Packets, ranks, 80);
REEL_FIELD(Packets, rank, 84);
REEL_FIELD(Packets, ahead, 88);
REEL_FIELD(Packets, unused, 92);

REEL_SIZE(ProjectionArgs, 80);
REEL_FIELD(ProjectionArgs, w, 0);
REEL_FIELD(ProjectionArgs, in, 8);
REEL_FIELD(ProjectionArgs, x, 48);
REEL_FIELD(ProjectionArgs, bias, 56);
REEL_FIELD(ProjectionArgs, rows, 64);
REEL_FIELD(ProjectionArgs, stores, 68);
REEL_FIELD(ProjectionArgs, stride, 72);
REEL_FIELD(ProjectionArgs, unused, 76);

REEL_SIZE(ProposeArgs, 88);
REEL_FIELD(ProposeArgs, logits, 0);
REEL_FIELD(ProposeArgs, tokens, 8);
REEL_FIELD(ProposeArgs, slot, 16);
REEL_FIELD(ProposeArgs, position, 24);
REEL_FIELD(ProposeArgs, token, 32);
REEL_FIELD(ProposeArgs, history, 40);
REEL_FIELD(ProposeArgs, masked, 48);
REEL_FIELD(ProposeArgs, queries, 56);
REEL_FIELD(ProposeArgs, draft, 60);
REEL_FIELD(ProposeArgs, cols, 64);
REEL_FIELD(ProposeArgs, vocab, 68);
REEL_FIELD(ProposeArgs, context, 72);
REEL_FIELD(ProposeArgs, trash, 76);
REEL_FIELD(ProposeArgs, stride, 80);
REEL_FIELD(ProposeArgs, unused, 84);

REEL_SIZE(QKPostArgs, 120);
REEL_FIELD(QKPostArgs, q, 0);
REEL_FIELD(QKPostArgs, kv, 8);
REEL_FIELD(QKPostArgs, bias, 16);
REEL_FIELD(QKPostArgs, norms, 24);
REEL_FIELD(QKPostArgs, rope, 32);
REEL_FIELD(QKPostArgs, slot, 40);
REEL_FIELD(QKPostArgs, position, 48);
REEL_FIELD(QKPostArgs, table, 56);
REEL_FIELD(QKPostArgs, pool, 64);
REEL_FIELD(QKPostArgs, T, 72);
REEL_FIELD(QKPostArgs, heads, 76);
REEL_FIELD(QKPostArgs, kvHeads, 80);
REEL_FIELD(QKPostArgs, dim, 84);
REEL_FIELD(QKPostArgs, pages, 88);
REEL_FIELD(QKPostArgs, layer, 92);
REEL_FIELD(QKPostArgs, layers, 96);
REEL_FIELD(QKPostArgs, pageTokens, 100);
REEL_FIELD(QKPostArgs, kvType, 104);
REEL_FIELD(QKPostArgs, eps, 108);
REEL_FIELD(QKPostArgs, valueNorms, 112);

REEL_SIZE(QKVArgs, 144);
REEL_FIELD(QKVArgs, q, 0);
REEL_FIELD(QKVArgs, k, 8);
REEL_FIELD(QKVArgs, v, 16);
REEL_FIELD(QKVArgs, in, 24);
REEL_FIELD(QKVArgs, rope, 64);
REEL_FIELD(QKVArgs, slot, 72);
REEL_FIELD(QKVArgs, position, 80);
REEL_FIELD(QKVArgs, table, 88);
REEL_FIELD(QKVArgs, pool, 96);
REEL_FIELD(QKVArgs, out, 104);
REEL_FIELD(QKVArgs, heads, 112);
REEL_FIELD(QKVArgs, kvHeads, 116);
REEL_FIELD(QKVArgs, dim, 120);
REEL_FIELD(QKVArgs, pages, 124);
REEL_FIELD(QKVArgs, layer, 128);
REEL_FIELD(QKVArgs, layers, 132);
REEL_FIELD(QKVArgs, pageTokens, 136);
REEL_FIELD(QKVArgs, kvType, 140);

REEL_SIZE(ReadArgs, 24);
REEL_FIELD(ReadArgs, data, 0);
REEL_FIELD(ReadArgs, out, 8);
REEL_FIELD(ReadArgs, n, 16);

REEL_SIZE(RestoreArgs, 72);
REEL_FIELD(RestoreArgs, staged, 0);
REEL_FIELD(RestoreArgs, blockTable, 8);
REEL_FIELD(RestoreArgs, length, 16);
REEL_FIELD(RestoreArgs, last, 24);
REEL_FIELD(RestoreArgs, history, 32);
REEL_FIELD(RestoreArgs, params, 40);
REEL_FIELD(RestoreArgs, slot, 48);
REEL_FIELD(RestoreArgs, pages, 52);
REEL_FIELD(RestoreArgs, tokens, 56);
REEL_FIELD(RestoreArgs, tablePages, 60);
REEL_FIELD(RestoreArgs, context, 64);
REEL_FIELD(RestoreArgs, pad, 68);

REEL_SIZE(RouteArgs, 168);
REEL_FIELD(RouteArgs, x, 0);
REEL_FIELD(RouteArgs, norm, 8);
REEL_FIELD(RouteArgs, rows, 16);
REEL_FIELD(RouteArgs, router, 24);
REEL_FIELD(RouteArgs, bias, 32);
REEL_FIELD(RouteArgs, choice, 40);
REEL_FIELD(RouteArgs, logits, 48);
REEL_FIELD(RouteArgs, arrivals, 56);
REEL_FIELD(RouteArgs, ids, 64);
REEL_FIELD(RouteArgs, weights, 72);
REEL_FIELD(RouteArgs, T, 80);
REEL_FIELD(RouteArgs, hidden, 84);
REEL_FIELD(RouteArgs, experts, 88);
REEL_FIELD(RouteArgs, used, 92);
REEL_FIELD(RouteArgs, groups, 96);
REEL_FIELD(RouteArgs, groupsUsed, 100);
REEL_FIELD(RouteArgs, bestTwo, 104);
REEL_FIELD(RouteArgs, scoring, 108);
REEL_FIELD(RouteArgs, normalise, 112);
REEL_FIELD(RouteArgs, byScore, 116);
REEL_FIELD(RouteArgs, scale, 120);
REEL_FIELD(RouteArgs, eps, 124);
REEL_FIELD(RouteArgs, count, 128);
REEL_FIELD(RouteArgs, expert, 136);
REEL_FIELD(RouteArgs, place, 144);
REEL_FIELD(RouteArgs, row, 152);
REEL_FIELD(RouteArgs, scales, 160);

REEL_SIZE(ExchangeRoundedArgs, 168);
REEL_FIELD(ExchangeRoundedArgs, rounded, 0);
REEL_FIELD(ExchangeRoundedArgs, flags, 64);
REEL_FIELD(ExchangeRoundedArgs, epochs, 128);
REEL_FIELD(ExchangeRoundedArgs, progress, 136);
REEL_FIELD(ExchangeRoundedArgs, parts, 144);
REEL_FIELD(ExchangeRoundedArgs, ranks, 160);
REEL_FIELD(ExchangeRoundedArgs, rank, 164);

REEL_SIZE(RoundedParts, 16);
REEL_FIELD(RoundedParts, rows, 0);
REEL_FIELD(RoundedParts, squares, 4);
REEL_FIELD(RoundedParts, squares_at, 8);
REEL_FIELD(RoundedParts, unused, 12);

REEL_SIZE(RoundedPacketsArgs, 128);
REEL_FIELD(RoundedPacketsArgs, rounded, 0);
REEL_FIELD(RoundedPacketsArgs, packets, 8);
REEL_FIELD(RoundedPacketsArgs, parts, 104);
REEL_FIELD(RoundedPacketsArgs, first, 120);
REEL_FIELD(RoundedPacketsArgs, pairs, 124);

REEL_SIZE(RoundPlacesArgs, 72);
REEL_FIELD(RoundPlacesArgs, in, 0);
REEL_FIELD(RoundPlacesArgs, out, 40);
REEL_FIELD(RoundPlacesArgs, scales, 48);
REEL_FIELD(RoundPlacesArgs, slot, 56);
REEL_FIELD(RoundPlacesArgs, slots, 64);
REEL_FIELD(RoundPlacesArgs, used, 68);

REEL_SIZE(RoundArgs, 64);
REEL_FIELD(RoundArgs, in, 0);
REEL_FIELD(RoundArgs, out, 40);
REEL_FIELD(RoundArgs, scales, 48);
REEL_FIELD(RoundArgs, tokens, 56);
REEL_FIELD(RoundArgs, unused, 60);

REEL_SIZE(RoundCodesArgs, 72);
REEL_FIELD(RoundCodesArgs, in, 0);
REEL_FIELD(RoundCodesArgs, rows, 40);
REEL_FIELD(RoundCodesArgs, scales, 48);
REEL_FIELD(RoundCodesArgs, sums, 56);
REEL_FIELD(RoundCodesArgs, tokens, 64);
REEL_FIELD(RoundCodesArgs, unused, 68);

REEL_SIZE(RoundedInput, 24);
REEL_FIELD(RoundedInput, rows, 0);
REEL_FIELD(RoundedInput, scales, 8);
REEL_FIELD(RoundedInput, tokens, 16);
REEL_FIELD(RoundedInput, squares, 20);

REEL_SIZE(SampleArgs, 120);
REEL_FIELD(SampleArgs, logits, 0);
REEL_FIELD(SampleArgs, sample, 8);
REEL_FIELD(SampleArgs, slot, 16);
REEL_FIELD(SampleArgs, position, 24);
REEL_FIELD(SampleArgs, number, 32);
REEL_FIELD(SampleArgs, history, 40);
REEL_FIELD(SampleArgs, params, 48);
REEL_FIELD(SampleArgs, mask, 56);
REEL_FIELD(SampleArgs, bias, 64);
REEL_FIELD(SampleArgs, edited, 72);
REEL_FIELD(SampleArgs, token, 80);
REEL_FIELD(SampleArgs, results, 88);
REEL_FIELD(SampleArgs, vocab, 96);
REEL_FIELD(SampleArgs, context, 100);
REEL_FIELD(SampleArgs, ringSlots, 104);
REEL_FIELD(SampleArgs, maxSamples, 108);
REEL_FIELD(SampleArgs, queries, 112);
REEL_FIELD(SampleArgs, masks, 116);

REEL_SIZE(SlicePlan, 572);
REEL_FIELD(SlicePlan, slices, 0);
REEL_FIELD(SlicePlan, tokenTiles, 4);
REEL_FIELD(SlicePlan, kBlocks, 8);
REEL_FIELD(SlicePlan, perTile, 12);
REEL_FIELD(SlicePlan, inverse, 16);
REEL_FIELD(SlicePlan, tokens, 20);
REEL_FIELD(SlicePlan, firstUnit, 24);
REEL_FIELD(SlicePlan, endUnit, 28);
REEL_FIELD(SlicePlan, rounds, 32);
REEL_FIELD(SlicePlan, starts, 36);

REEL_SIZE(SoftcapArgs, 24);
REEL_FIELD(SoftcapArgs, logits, 0);
REEL_FIELD(SoftcapArgs, sample, 8);
REEL_FIELD(SoftcapArgs, vocab, 16);
REEL_FIELD(SoftcapArgs, limit, 20);

REEL_SIZE(Spread, 136);
REEL_FIELD(Spread, packets, 0);
REEL_FIELD(Spread, all, 96);
REEL_FIELD(Spread, x, 104);
REEL_FIELD(Spread, bias, 112);
REEL_FIELD(Spread, rows, 120);
REEL_FIELD(Spread, width, 124);
REEL_FIELD(Spread, part_cols, 128);
REEL_FIELD(Spread, taken, 132);

REEL_SIZE(SpreadArgs<ExpertDown>, 288);
REEL_FIELD(SpreadArgs<ExpertDown>, op, 0);
REEL_FIELD(SpreadArgs<ExpertDown>, to, 136);
REEL_FIELD(SpreadArgs<ExpertDown>, receivers, 272);
REEL_FIELD(SpreadArgs<ExpertDown>, own, 276);
REEL_FIELD(SpreadArgs<ExpertDown>, after, 280);
REEL_FIELD(SpreadArgs<ExpertDown>, unused, 284);

REEL_SIZE(SpreadArgs<ExpertGateUpOne>, 296);
REEL_FIELD(SpreadArgs<ExpertGateUpOne>, op, 0);
REEL_FIELD(SpreadArgs<ExpertGateUpOne>, to, 144);
REEL_FIELD(SpreadArgs<ExpertGateUpOne>, receivers, 280);
REEL_FIELD(SpreadArgs<ExpertGateUpOne>, own, 284);
REEL_FIELD(SpreadArgs<ExpertGateUpOne>, after, 288);
REEL_FIELD(SpreadArgs<ExpertGateUpOne>, unused, 292);

REEL_SIZE(SpreadCodesArgs<ExpertDown>, 368);
REEL_FIELD(SpreadCodesArgs<ExpertDown>, op, 0);
REEL_FIELD(SpreadCodesArgs<ExpertDown>, to, 216);
REEL_FIELD(SpreadCodesArgs<ExpertDown>, receivers, 352);
REEL_FIELD(SpreadCodesArgs<ExpertDown>, own, 356);
REEL_FIELD(SpreadCodesArgs<ExpertDown>, after, 360);
REEL_FIELD(SpreadCodesArgs<ExpertDown>, unused, 364);

REEL_SIZE(SpreadCodesArgs<ExpertGateUpOne>, 376);
REEL_FIELD(SpreadCodesArgs<ExpertGateUpOne>, op, 0);
REEL_FIELD(SpreadCodesArgs<ExpertGateUpOne>, to, 224);
REEL_FIELD(SpreadCodesArgs<ExpertGateUpOne>, receivers, 360);
REEL_FIELD(SpreadCodesArgs<ExpertGateUpOne>, own, 364);
REEL_FIELD(SpreadCodesArgs<ExpertGateUpOne>, after, 368);
REEL_FIELD(SpreadCodesArgs<ExpertGateUpOne>, unused, 372);

REEL_SIZE(SpreadArgs<GateUp>, 232);
REEL_FIELD(SpreadArgs<GateUp>, op, 0);
REEL_FIELD(SpreadArgs<GateUp>, to, 80);
REEL_FIELD(SpreadArgs<GateUp>, receivers, 216);
REEL_FIELD(SpreadArgs<GateUp>, own, 220);
REEL_FIELD(SpreadArgs<GateUp>, after, 224);
REEL_FIELD(SpreadArgs<GateUp>, unused, 228);

REEL_SIZE(SpreadArgs<Projection>, 232);
REEL_FIELD(SpreadArgs<Projection>, op, 0);
REEL_FIELD(SpreadArgs<Projection>, to, 80);
REEL_FIELD(SpreadArgs<Projection>, receivers, 216);
REEL_FIELD(SpreadArgs<Projection>, own, 220);
REEL_FIELD(SpreadArgs<Projection>, after, 224);
REEL_FIELD(SpreadArgs<Projection>, unused, 228);

REEL_SIZE(StageArgs, 136);
REEL_FIELD(StageArgs, ring, 0);
REEL_FIELD(StageArgs, counter, 8);
REEL_FIELD(StageArgs, blockTable, 16);
REEL_FIELD(StageArgs, length, 24);
REEL_FIELD(StageArgs, last, 32);
REEL_FIELD(StageArgs, history, 40);
REEL_FIELD(StageArgs, params, 48);
REEL_FIELD(StageArgs, slot, 56);
REEL_FIELD(StageArgs, position, 64);
REEL_FIELD(StageArgs, token, 72);
REEL_FIELD(StageArgs, sample, 80);
REEL_FIELD(StageArgs, number, 88);
REEL_FIELD(StageArgs, ringSlots, 96);
REEL_FIELD(StageArgs, words, 100);
REEL_FIELD(StageArgs, sampleAt, 104);
REEL_FIELD(StageArgs, initAt, 108);
REEL_FIELD(StageArgs, pageAt, 112);
REEL_FIELD(StageArgs, count, 116);
REEL_FIELD(StageArgs, pages, 120);
REEL_FIELD(StageArgs, context, 124);
REEL_FIELD(StageArgs, T, 128);
REEL_FIELD(StageArgs, N, 132);

REEL_SIZE(StreamKArgs<GateUp>, 728);
REEL_FIELD(StreamKArgs<GateUp>, op, 0);
REEL_FIELD(StreamKArgs<GateUp>, rounded, 80);
REEL_FIELD(StreamKArgs<GateUp>, handover, 104);
REEL_FIELD(StreamKArgs<GateUp>, partials, 136);
REEL_FIELD(StreamKArgs<GateUp>, arrivals, 144);
REEL_FIELD(StreamKArgs<GateUp>, plan, 152);

REEL_SIZE(StreamKArgs<Projection>, 728);
REEL_FIELD(StreamKArgs<Projection>, op, 0);
REEL_FIELD(StreamKArgs<Projection>, rounded, 80);
REEL_FIELD(StreamKArgs<Projection>, handover, 104);
REEL_FIELD(StreamKArgs<Projection>, partials, 136);
REEL_FIELD(StreamKArgs<Projection>, arrivals, 144);
REEL_FIELD(StreamKArgs<Projection>, plan, 152);

REEL_SIZE(StreamKArgs<QKV>, 792);
REEL_FIELD(StreamKArgs<QKV>, op, 0);
REEL_FIELD(StreamKArgs<QKV>, rounded, 144);
REEL_FIELD(StreamKArgs<QKV>, handover, 168);
REEL_FIELD(StreamKArgs<QKV>, partials, 200);
REEL_FIELD(StreamKArgs<QKV>, arrivals, 208);
REEL_FIELD(StreamKArgs<QKV>, plan, 216);

REEL_SIZE(TaggedArgs<GateUp>, 120);
REEL_FIELD(TaggedArgs<GateUp>, op, 0);
REEL_FIELD(TaggedArgs<GateUp>, tags, 80);

REEL_SIZE(TaggedArgs<Head>, 104);
REEL_FIELD(TaggedArgs<Head>, op, 0);
REEL_FIELD(TaggedArgs<Head>, tags, 64);

REEL_SIZE(TaggedArgs<Projection>, 120);
REEL_FIELD(TaggedArgs<Projection>, op, 0);
REEL_FIELD(TaggedArgs<Projection>, tags, 80);

REEL_SIZE(TaggedArgs<QKVApart>, 184);
REEL_FIELD(TaggedArgs<QKVApart>, op, 0);
REEL_FIELD(TaggedArgs<QKVApart>, tags, 144);

REEL_SIZE(TaggedDownArgs<CodesArgs<ExpertDown>>, 272);
REEL_FIELD(TaggedDownArgs<CodesArgs<ExpertDown>>, op, 0);
REEL_FIELD(TaggedDownArgs<CodesArgs<ExpertDown>>, tags, 216);
REEL_FIELD(TaggedDownArgs<CodesArgs<ExpertDown>>, choice, 256);
REEL_FIELD(TaggedDownArgs<CodesArgs<ExpertDown>>, experts, 264);
REEL_FIELD(TaggedDownArgs<CodesArgs<ExpertDown>>, unused, 268);

REEL_SIZE(TaggedDownArgs<ExpertDownArgs>, 192);
REEL_FIELD(TaggedDownArgs<ExpertDownArgs>, op, 0);
REEL_FIELD(TaggedDownArgs<ExpertDownArgs>, tags, 136);
REEL_FIELD(TaggedDownArgs<ExpertDownArgs>, choice, 176);
REEL_FIELD(TaggedDownArgs<ExpertDownArgs>, experts, 184);
REEL_FIELD(TaggedDownArgs<ExpertDownArgs>, unused, 188);

REEL_SIZE(TaggedGatesArgs<ExpertGateUpArgs>, 368);
REEL_FIELD(TaggedGatesArgs<ExpertGateUpArgs>, op, 0);
REEL_FIELD(TaggedGatesArgs<ExpertGateUpArgs>, tags, 144);
REEL_FIELD(TaggedGatesArgs<ExpertGateUpArgs>, choice, 184);

REEL_SIZE(TaggedRouteArgs, 208);
REEL_FIELD(TaggedRouteArgs, of, 0);
REEL_FIELD(TaggedRouteArgs, tags, 168);

REEL_SIZE(Tags, 40);
REEL_FIELD(Tags, pass, 0);
REEL_FIELD(Tags, in, 8);
REEL_FIELD(Tags, out, 16);
REEL_FIELD(Tags, taken, 24);
REEL_FIELD(Tags, given, 28);
REEL_FIELD(Tags, scale, 32);
REEL_FIELD(Tags, unused, 36);

REEL_SIZE(VectorArgs, 88);
REEL_FIELD(VectorArgs, x, 0);
REEL_FIELD(VectorArgs, index, 8);
REEL_FIELD(VectorArgs, norm, 16);
REEL_FIELD(VectorArgs, sample, 24);
REEL_FIELD(VectorArgs, slot, 32);
REEL_FIELD(VectorArgs, number, 40);
REEL_FIELD(VectorArgs, params, 48);
REEL_FIELD(VectorArgs, results, 56);
REEL_FIELD(VectorArgs, vectors, 64);
REEL_FIELD(VectorArgs, cols, 72);
REEL_FIELD(VectorArgs, ringSlots, 76);
REEL_FIELD(VectorArgs, maxSamples, 80);
REEL_FIELD(VectorArgs, eps, 84);

REEL_SIZE(WidthNormsArgs, 40);
REEL_FIELD(WidthNormsArgs, q, 0);
REEL_FIELD(WidthNormsArgs, kv, 8);
REEL_FIELD(WidthNormsArgs, norms, 16);
REEL_FIELD(WidthNormsArgs, queries, 24);
REEL_FIELD(WidthNormsArgs, keys, 28);
REEL_FIELD(WidthNormsArgs, parts, 32);
REEL_FIELD(WidthNormsArgs, eps, 36);

REEL_SIZE(AttendDeferredArgs, 320);
REEL_SIZE(AttendLogitsArgs<AttendDeferredArgs>, 336);
REEL_SIZE(AttendSpreadArgs<AttendDeferredArgs>, 456);
REEL_SIZE(AttendHandingArgs<AttendDeferredArgs>, 360);
REEL_SIZE(AttendHandingArgs<AttendLogitsArgs<AttendDeferredArgs>>, 376);
REEL_SIZE(AttendTaggedArgs, 360);
REEL_SIZE(AttendLogitsArgs<AttendTaggedArgs>, 376);
REEL_SIZE(AttendFromArgs, 208);
static_assert(sizeof(Tags) == 40, "away follows the base");
REEL_SIZE(RankTags, 112);
REEL_SIZE(RankArgs<GateUp>, 192);
REEL_SIZE(RankArgs<Head>, 176);
REEL_SIZE(RankArgs<Projection>, 192);
REEL_SIZE(RankArgs<QKVApart>, 256);
REEL_SIZE(AttendRankArgs, 432);
REEL_SIZE(RankRouteArgs, 280);
static_assert(sizeof(AttendArgs) == 200, "post and earliest follow the base");

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
REEL_SIZE(TaggedGatesArgs<CodesArgs<ExpertGateUpTagged>>, 448);
REEL_FIELD(TaggedGatesArgs<CodesArgs<ExpertGateUpTagged>>, op, 0);
REEL_FIELD(TaggedGatesArgs<CodesArgs<ExpertGateUpTagged>>, tags, 224);
REEL_FIELD(TaggedGatesArgs<CodesArgs<ExpertGateUpTagged>>, choice, 264);

REEL_SIZE(WgmmaArgs<GateUp>, 104);
REEL_FIELD(WgmmaArgs<GateUp>, op, 0);
REEL_FIELD(WgmmaArgs<GateUp>, rounded, 80);

REEL_SIZE(WgmmaArgs<Head>, 88);
REEL_FIELD(WgmmaArgs<Head>, op, 0);
REEL_FIELD(WgmmaArgs<Head>, rounded, 64);

REEL_SIZE(WgmmaArgs<Projection>, 104);
REEL_FIELD(WgmmaArgs<Projection>, op, 0);
REEL_FIELD(WgmmaArgs<Projection>, rounded, 80);

REEL_SIZE(WgmmaArgs<QKV>, 168);
REEL_FIELD(WgmmaArgs<QKV>, op, 0);
REEL_FIELD(WgmmaArgs<QKV>, rounded, 144);
REEL_SIZE(RankGatesArgs, 440);
REEL_SIZE(RankDownArgs, 264);
#endif
