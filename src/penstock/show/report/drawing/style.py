"""Style: the one style sheet of a report, for light and dark, for a phone, and for paper.

Blue and orange can be told apart by everyone; each value is also written beside its bar.
"""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #fbfbfa; --card: #ffffff; --ink: #1d2329; --soft: #59636e; --line: #e3e6e9; --band: #f3f5f7;
  --one: #0067a8; --one-soft: #d6e7f3; --two: #c25400; --good: #14713f; --track: #eef1f3;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #121518; --card: #1a1e22; --ink: #e8eaed; --soft: #a0a9b3; --line: #2e343a; --band: #20252a;
    --one: #62b4ec; --one-soft: #1f3a4d; --two: #f0a04b; --good: #6fcf97; --track: #262c32;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--page); color: var(--ink); overflow-wrap: anywhere;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif;
}
main { max-width: 60rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1, h2, h3, p, figure, pre, dl, dd, ul { margin: 0; }
h1 { font-size: 1.75rem; line-height: 1.2; font-weight: 650; letter-spacing: -0.01em; }
h2 { font-size: 1.125rem; font-weight: 650; margin-bottom: 0.25rem; }
h3 { font-size: 0.9375rem; font-weight: 600; }
.eyebrow { color: var(--soft); font-size: 0.8125rem; letter-spacing: 0.06em; text-transform: uppercase; }
.soft, .lead, figcaption { color: var(--soft); }
.lead { margin-top: 0.375rem; }
.note { color: var(--soft); font-size: 0.875rem; max-width: 46rem; }
nav { display: flex; flex-wrap: wrap; gap: 0.25rem 1.125rem; margin-top: 1.25rem; font-size: 0.875rem; }
nav a { color: var(--one); text-decoration: none; }
nav a:hover { text-decoration: underline; }
a:focus-visible, summary:focus-visible, [tabindex]:focus-visible { outline: 2px solid var(--one); outline-offset: 2px; }
section { margin-top: 2.75rem; }
figure, .card {
  background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 1.125rem 1.25rem; margin-top: 0.75rem;
}
figcaption { font-size: 0.875rem; margin-bottom: 0.75rem; }
figcaption h3 { color: var(--ink); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: 0.75rem; }
.tiles { margin-top: 1.5rem; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 0.875rem 1rem; }
.tile dt { color: var(--soft); font-size: 0.8125rem; }
.tile { container-type: inline-size; }
.tile .big { font-size: 1.5rem; line-height: 1.3; font-weight: 620; }
.tile .big { font-variant-numeric: tabular-nums; }
.tile .big.long { font-size: min(1.5rem, 12cqi); }
.tile .big.longest { font-size: min(1.5rem, 10cqi); }
.tile .small { color: var(--soft); font-size: 0.8125rem; }
.tile svg { display: block; margin: 0.375rem 0 0.25rem; }
.balance { margin-top: 1rem; font-weight: 550; }
.good { color: var(--good); }
.bad { color: var(--two); }
.callout { border-left: 3px solid var(--one); }
.callout.warn { border-left-color: var(--two); }
.callout ul { padding-left: 1.125rem; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 0.75rem; }
.pair { margin-top: 0.75rem; }
.pair figure { min-width: 0; margin-top: 0; }
svg { display: block; max-width: 100%; overflow: visible; }
svg text { font-size: 12px; fill: var(--soft); font-variant-numeric: tabular-nums; }
svg text.strong { fill: var(--ink); font-weight: 600; }
svg text.budget { fill: var(--two); font-weight: 600; }
svg .halo { paint-order: stroke; stroke: var(--card); stroke-width: 4px; stroke-linejoin: round; }
.grid { stroke: var(--line); stroke-width: 1; shape-rendering: crispEdges; }
.axis { stroke: var(--soft); stroke-width: 1; shape-rendering: crispEdges; }
.limit { stroke: var(--two); stroke-width: 1.5; stroke-dasharray: 6 4; }
.band { fill: var(--band); }
.area { fill: var(--one-soft); }
.curve { fill: none; stroke: var(--one); stroke-width: 2; stroke-linejoin: round; vector-effect: non-scaling-stroke; }
.dot { fill: var(--one); stroke: var(--card); stroke-width: 2; }
.track { fill: var(--track); }
.one { fill: var(--one); }
.two { fill: var(--two); }
.bars { display: grid; grid-template-columns: minmax(0, 1fr); gap: 0.625rem; }
.bar { display: grid; grid-template-columns: 11rem minmax(0, 1fr) 15rem; gap: 0 1rem; align-items: center; }
.bar .name { font-weight: 550; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.bar .name small { display: block; font-weight: 400; color: var(--soft); overflow: hidden; text-overflow: ellipsis; }
.bar .value { font-variant-numeric: tabular-nums; font-size: 0.875rem; }
.bar .value small { color: var(--soft); font-size: 0.8125rem; margin-left: 0.375rem; }
.part { display: inline-block; max-width: 100%; margin-right: 0.5rem; }
.bars .unit { color: var(--soft); font-size: 0.8125rem; margin-top: 0.375rem; }
.legend { display: flex; flex-wrap: wrap; gap: 0 1.25rem; margin-bottom: 0.75rem; }
.legend { font-size: 0.8125rem; color: var(--soft); }
.legend svg { display: inline-block; vertical-align: -1px; margin-right: 0.375rem; }
details { margin-top: 0.875rem; font-size: 0.875rem; }
summary { cursor: pointer; color: var(--soft); width: fit-content; }
.scroll { overflow-x: auto; margin-top: 0.5rem; }
table { border-collapse: collapse; width: 100%; font-size: 0.875rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 0.3125rem 1rem 0.3125rem 0; vertical-align: top; }
th, td { border-bottom: 1px solid var(--line); }
th { font-weight: 550; color: var(--soft); white-space: nowrap; }
td { min-width: 7rem; }
.number { text-align: right; white-space: nowrap; min-width: 0; }
tr > :last-child { padding-right: 0; }
code, pre, .code { font: 0.8125rem/1.55 ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace; }
pre { overflow-x: auto; }
.facts { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 0.25rem 1.5rem; font-size: 0.875rem; }
.facts dt { color: var(--soft); }
footer { margin-top: 3rem; color: var(--soft); font-size: 0.8125rem; }
@media (max-width: 40rem) {
  main { padding: 1.5rem 1rem 3rem; }
  h1 { font-size: 1.4375rem; }
  figure, .card { padding: 1rem; }
  .tiles { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 0.5rem; }
  .tile .big { font-size: 1.25rem; }
  .tile:first-child:nth-last-child(odd) { grid-column: 1 / -1; }
  .bar { grid-template-columns: minmax(0, 1fr) auto; gap: 0.125rem 0.75rem; }
  .bar svg { grid-column: 1 / -1; grid-row: 2; }
  .bar .value { text-align: right; max-width: 13rem; }
  .facts { grid-template-columns: minmax(0, 1fr); gap: 0; }
  .facts dd { margin-bottom: 0.5rem; }
}
@media print {
  :root { --page: #fff; --card: #fff; --ink: #000; --soft: #444; --line: #ccc; --band: #f3f5f7; --one: #0067a8;
    --one-soft: #d6e7f3; --two: #c25400; --good: #14713f; --track: #eef1f3; }
  body { font-size: 11px; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  main { max-width: none; padding: 0; }
  nav { display: none; }
  section { margin-top: 1.5rem; }
  svg, .tile, .bar, tr { break-inside: avoid; }
  h2, figcaption, summary { break-after: avoid; }
  .scroll { overflow: visible; }
  th { white-space: normal; }
  td { min-width: 0; }
  details::details-content { content-visibility: visible; block-size: auto; }
  pre { white-space: pre-wrap; overflow-wrap: anywhere; }
}
"""
