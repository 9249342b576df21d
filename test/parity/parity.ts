/**
 * Compares the responses of the control plane with those of kube-apiserver 1.36.2 to the same requests. `--help` explains the
 * usage.
 */
import { createPrivateKey } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { parseCertificates } from '../../api/pki/certificate.ts';
import { startControlPlane } from '../../controlplane/main.ts';
import type { ControlPlaneFlags } from '../../controlplane/options/controlplane-options.ts';
import type { SigningAuthority } from './certificates.ts';
import { compare, type Difference } from './compare.ts';
import { replayManifests } from './manifests.ts';
import { Replayer, type Target } from './replay.ts';
import { areas, scenariosOf, type Scenario } from './scenario.ts';

const USAGE = `usage: npm run parity -- [--area a,b] [--only TEXT] [--diff] [--check] [--known] [--update] [--parallel N]
                         [--patience SECONDS] [--within SECONDS]
                         [--server URL --token TOKEN [--client-ca-cert FILE --client-ca-key FILE]] [--etcd URL]
       npm run parity -- --manifests [--only PROJECT,PROJECT] [--diff] [--check] [--update] [--server URL --token TOKEN]

Sends recorded requests to a control plane and compares the answers with those of kube-apiserver 1.36.2. Scenarios that
are listed in test/parity/differing.txt may differ; every other scenario must match.

  --only TEXT         scenarios whose name contains TEXT; with --manifests, the projects
  --area a,b          scenarios of these areas
  --diff              show what differs
  --check             exit with 1 when a scenario that must match differs or did not run
  --known             leave out the scenarios that may differ
  --update            rewrite the list for the areas that ran; reasons are kept
  --parallel N        how many scenarios run at a time (default 8)
  --patience SECONDS  how long a step may take until its answer matches (default 30)
  --within SECONDS    start no scenario after this time
  --manifests         apply the manifests of real projects instead
  --server URL        another server than one that this program starts
  --etcd URL          keeps the objects in this etcd, below a prefix of their own
`;
const DIFFERING = join(import.meta.dirname, 'differing.txt');
/** The token of the administrator in the recordings. */
const ADMIN_TOKEN = 'parity-administrator';
let controlPlanes = 0;
const SHOWN_DIFFERENCES = 25;
const SHOWN_CHARS = 600;
const SLOW_SECONDS = 10;
/** The maximum number of scenarios that run again alone. On a busy machine a few may fail by accident, but not many. */
const MAX_AGAIN = 10;

interface Result {
  readonly scenario: Scenario;
  readonly skipped: boolean;
  readonly steps: number;
  readonly seconds: number;
  readonly differing: readonly { readonly step: string; readonly differences: readonly Difference[] }[];
}

const { values: options } = parseArgs({
  options: {
    area: { type: 'string' },
    only: { type: 'string' },
    diff: { type: 'boolean', default: false },
    check: { type: 'boolean', default: false },
    known: { type: 'boolean', default: false },
    update: { type: 'boolean', default: false },
    within: { type: 'string', default: 'Infinity' },
    parallel: { type: 'string', default: '8' },
    server: { type: 'string' },
    etcd: { type: 'string' },
    token: { type: 'string', default: '' },
    manifests: { type: 'boolean', default: false },
    patience: { type: 'string', default: '30' },
    'client-ca-cert': { type: 'string' },
    'client-ca-key': { type: 'string' },
    help: { type: 'boolean', default: false },
  },
});
if (options.help) {
  process.stdout.write(USAGE);
  process.exit(0);
}

const started = performance.now();
/** The reasons for scenarios that are known to differ, by title. Lines have the form `title # reason`. */
const knownToDiffer: ReadonlyMap<string, string> = new Map(
  readFileSync(DIFFERING, 'utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => {
      const [title = '', reason = ''] = line.split(' # ');
      return [title, reason];
    }),
);

process.exitCode = options.manifests ? await manifests() : await main();

async function manifests(): Promise<number> {
  const { diff, check, update } = options;
  const { target, close } = await openTarget({ controllers: ['-*'], scheduler: false });
  try {
    return await replayManifests(target, { projects: options.only?.split(','), diff, check, update });
  } finally {
    await close();
  }
}

async function main(): Promise<number> {
  const wanted = options.area?.split(',') ?? areas();
  const scenarios = wanted
    .flatMap(scenariosOf)
    .filter((scenario) => options.only === undefined || scenario.name.includes(options.only))
    .filter((scenario) => !options.known || !knownToDiffer.has(titleOf({ scenario })));
  if (scenarios.length === 0) {
    process.stderr.write(
      `no scenario has "${options.only ?? ''}" in its name; the files are in test/parity/exchanges\n`,
    );
    return 2;
  }
  const { target, close } = await openTarget();
  const replayer = new Replayer(target);
  try {
    const results = await runAll(scenarios, replayer, target);
    if (options.check) await runLostAgain(results, replayer, target);
    report(results);
    return settle(results);
  } finally {
    await replayer.close();
    await close();
  }
}

async function openTarget(
  flags: Partial<ControlPlaneFlags> = {},
): Promise<{ target: Target; close: () => Promise<void> }> {
  const { server, token } = options;
  const patienceSeconds = Number(options.patience);
  if (server !== undefined) {
    const clientCa = readAuthority(options['client-ca-cert'], options['client-ca-key']);
    return { target: { url: server, admin: { token }, clientCa, patienceSeconds }, close: async () => undefined };
  }
  const dataDir = mkdtempSync(join(tmpdir(), 'parity-'));
  const tokenAuthFile = join(dataDir, 'tokens.csv');
  writeFileSync(tokenAuthFile, `${ADMIN_TOKEN},rigadmin,1,"system:masters"\n`);
  const controlPlane = await startControlPlane({
    flags: {
      dataDir,
      tokenAuthFile,
      securePort: 0,
      bindAddress: '127.0.0.1',
      // The recorded kube-apiserver ran without ranges of pod addresses for nodes.
      clusterCidr: [],
      ...(options.etcd === undefined
        ? {}
        : { etcdServers: [options.etcd], etcdPrefix: `/parity-${process.pid}-${controlPlanes++}` }),
      ...flags,
    },
  });
  const target: Target = {
    url: controlPlane.url,
    patienceSeconds,
    admin: { token: ADMIN_TOKEN },
    clientCa: readAuthority(join(dataDir, 'pki', 'ca.crt'), join(dataDir, 'pki', 'ca.key')),
  };
  return {
    target,
    async close() {
      await controlPlane.close();
      rmSync(dataDir, { recursive: true, force: true });
    },
  };
}

function readAuthority(certFile: string | undefined, keyFile: string | undefined): SigningAuthority | undefined {
  if (certFile === undefined || keyFile === undefined) return undefined;
  const pem = readFileSync(certFile, 'utf8');
  const certificate = parseCertificates(pem)[0];
  if (certificate === undefined) throw new Error(`${certFile} holds no certificate`);
  return { pem, certificate, privateKey: createPrivateKey(readFileSync(keyFile)) };
}

/** Runs all scenarios, and the serial ones after the others. */
async function runAll(scenarios: readonly Scenario[], replayer: Replayer, target: Target): Promise<Result[]> {
  const results: Result[] = [];
  const run = async (scenario: Scenario): Promise<void> => {
    results.push(await runOne(scenario, replayer, target));
  };
  const beside = scenarios.filter((scenario) => scenario.serial !== true);
  const worker = async (): Promise<void> => {
    for (let next = beside.shift(); next !== undefined; next = beside.shift()) await run(next);
  };
  await Promise.all(Array.from({ length: Number(options.parallel) }, worker));
  for (const scenario of scenarios) if (scenario.serial === true) await run(scenario);
  return results;
}

/** Runs failed scenarios again, one at a time, because a machine may be too slow for many at once. */
async function runLostAgain(results: Result[], replayer: Replayer, target: Target): Promise<void> {
  let again = 0;
  for (const [index, result] of results.entries()) {
    if (again >= MAX_AGAIN) return;
    if (result.differing.length === 0 || knownToDiffer.has(titleOf(result))) continue;
    again += 1;
    results[index] = await runOne(result.scenario, replayer, target, true);
  }
}

function secondsGone(): number {
  return (performance.now() - started) / 1000;
}

async function runOne(scenario: Scenario, replayer: Replayer, target: Target, late = false): Promise<Result> {
  const cannot = scenario.needs === 'ca' && target.clientCa === undefined;
  if (cannot || (!late && secondsGone() > Number(options.within)))
    return { scenario, skipped: true, steps: 0, seconds: 0, differing: [] };
  const begun = secondsGone();
  const outcomes = await replayer.run(scenario);
  const differing: { step: string; differences: Difference[] }[] = [];
  let steps = 0;
  scenario.steps.forEach((step, index) => {
    if (step.want === undefined) return;
    steps += 1;
    const differences = compare(step, step.want, outcomes[index]);
    const title = `${index + 1}. ${step.method ?? 'GET'} ${step.path ?? `calls of ${step.calls ?? ''}`}`;
    if (differences.length > 0) differing.push({ step: title, differences });
  });
  return { scenario, skipped: false, steps, seconds: secondsGone() - begun, differing };
}

function report(results: readonly Result[]): void {
  const lines: string[] = [];
  for (const { scenario, differing, skipped, steps } of results) {
    if (skipped) lines.push(`skip  ${scenario.area}: ${scenario.name}`);
    if (differing.length === 0) continue;
    lines.push(`FAIL  ${scenario.area}: ${scenario.name} (${differing.length} of ${steps} steps differ)`);
    if (!options.diff) continue;
    for (const { step, differences } of differing) {
      lines.push(`      ${step}`);
      for (const { at, want, got } of differences.slice(0, SHOWN_DIFFERENCES)) {
        lines.push(`        ${at}\n          want ${shown(want)}\n          got  ${shown(got)}`);
      }
    }
  }
  for (const area of new Set(results.map((result) => result.scenario.area))) {
    const own = results.filter((result) => result.scenario.area === area);
    lines.push(`${String(matched(own).length).padStart(4)} of ${String(own.length).padStart(3)}  ${area}`);
  }
  for (const { scenario, seconds } of results)
    if (seconds > SLOW_SECONDS) lines.push(`${seconds.toFixed(1).padStart(5)} s  ${titleOf({ scenario })}`);
  const steps = sum(results.map((result) => result.steps));
  const differ = sum(results.map((result) => result.differing.length));
  lines.push(`${matched(results).length} of ${results.length} scenarios match, ${steps - differ} of ${steps} steps`);
  process.stdout.write(`${lines.join('\n')}\n`);
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}

function shown(value: unknown): string {
  const text = JSON.stringify(value) ?? 'nothing';
  return text.length > SHOWN_CHARS ? `${text.slice(0, SHOWN_CHARS)}…` : text;
}

function matched(results: readonly Result[]): readonly Result[] {
  return results.filter((result) => !result.skipped && result.differing.length === 0);
}

function titleOf({ scenario }: Pick<Result, 'scenario'>): string {
  return `${scenario.area}: ${scenario.name}`;
}

/** Returns the exit status. */
function settle(results: readonly Result[]): number {
  const matching = new Set(matched(results).map(titleOf));
  const required = results.filter((result) => !knownToDiffer.has(titleOf(result)));
  const lost = required.filter((result) => !result.skipped && !matching.has(titleOf(result)));
  const leftOut = required.filter(({ skipped }) => skipped);
  for (const result of lost) process.stdout.write(`no longer matches: ${titleOf(result)}\n`);
  for (const result of leftOut) process.stdout.write(`left out: ${titleOf(result)}\n`);
  if (options.update) {
    const ran = new Set(results.filter(({ skipped }) => !skipped).map(titleOf));
    const kept = [...knownToDiffer.keys()].filter((title) => !ran.has(title));
    const titles = [...kept, ...[...ran].filter((title) => !matching.has(title))].sort();
    writeFileSync(DIFFERING, titles.map((title) => `${title} # ${knownToDiffer.get(title) ?? ''}\n`).join(''));
  }
  if (!options.check) return 0;
  if (matching.size === 0) process.stdout.write('no scenario matched\n');
  return lost.length > 0 || leftOut.length > 0 || matching.size === 0 ? 1 : 0;
}
