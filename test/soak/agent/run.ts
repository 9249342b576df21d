/**
 * Tests the agent for hours (soak test). It is killed at one step after another while pods are created, deleted, resized, and
 * crash. From time to time it runs until everything is settled, and the test checks the host, the API server and the records of
 * the containers.
 */
import { globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import type { Runtime } from '../../../agent/runtime/runtime.ts';
import { keepAlive, systemClock } from '../../../api/machinery/clock.ts';
import { ControlPlaneProcess } from '../../integration/controlplane-process.ts';
import { unmountBelow } from '../../mounts.ts';
import { until } from '../../until.ts';
import { Api } from '../api.ts';
import { Random } from '../random.ts';
import type { SoakReport } from '../run.ts';
import { DeathPlan } from './deaths.ts';
import { type RuntimeName, SoakNode } from './node.ts';
import { CONTAINERS } from './pods.ts';
import { PodProgram } from './program.ts';
import { type ContainerRecord, judgeContainer, judgeOrder, parseMarks, PodHistory, type Role } from './records.ts';
import { follow } from './pod-watch.ts';
import { unsettled } from './settled.ts';

export interface AgentSoakOptions {
  readonly on: RuntimeName;
  /** The path of the runtime's socket. */
  readonly socket: string;
  /** The archive with the test images. */
  readonly images: string;
  readonly seconds: number;
  readonly seed: number;
  readonly onProgress?: (line: string) => void;
}

/** The parts of a run of the test. */
interface Scene {
  readonly options: AgentSoakOptions;
  readonly node: SoakNode;
  readonly api: Api;
  readonly runtime: Runtime;
  readonly program: PodProgram;
  readonly history: PodHistory;
  readonly plan: DeathPlan;
  readonly random: Random;
  readonly counts: Map<string, number>;
  readonly violations: string[];
}

const TOKEN = 'soak';
const KILLS_BETWEEN_CHECKS = 6;
/** The maximum time for which the agent runs after it responds, until it is killed. */
const MAX_RUN_MS = 6000;
const MAX_SETTLING_MS = 120_000;
const POLL_MS = 300;
const MAX_VIOLATIONS = 5;
const LOG_BYTES = 6000;

const sleep = (ms: number): Promise<void> => systemClock.sleep(ms);

function count({ counts }: Scene, what: string, by = 1): void {
  counts.set(what, (counts.get(what) ?? 0) + by);
}

/** Runs the test for the given time, and resolves to what it found. */
export async function soakAgent(options: AgentSoakOptions): Promise<SoakReport> {
  const directory = mkdtempSync(join(tmpdir(), 'orchlet-soak-'));
  writeFileSync(join(directory, 'tokens.csv'), `${TOKEN},soak,soak,"system:masters"\n`);
  const alive = keepAlive();
  const random = new Random(options.seed);
  const second = 10 + random.between(0, 200);
  const flags = ['--cluster-cidr', `10.${second}.0.0/16`, '--token-auth-file', join(directory, 'tokens.csv')];
  const plane = await ControlPlaneProcess.start(flags);
  const api = new Api(plane.port, TOKEN);
  const node = await SoakNode.prepare({ ...options, directory, kubeconfig: plane.kubeconfig });
  const runtime = await node.openRuntime();
  const history = new PodHistory();
  const program = new PodProgram(api, node, random);
  const [counts, violations]: [Map<string, number>, string[]] = [new Map(), []];
  const plan = new DeathPlan(random);
  const scene: Scene = { options, node, api, runtime, program, history, plan, random, counts, violations };
  const watching = new AbortController();
  try {
    await until('the service account', async () => {
      const { status } = await api.call('GET', '/api/v1/namespaces/default/serviceaccounts/default');
      return status === 200;
    });
    const settings = { metadata: { name: 'settings' }, data: { colour: 'red' } };
    await api.call('POST', '/api/v1/namespaces/default/configmaps', settings);
    const watch = follow(api, history, watching.signal);
    await disturb(scene);
    watching.abort();
    await watch;
  } catch (error) {
    violations.push(`${String(error)}\n${node.log.slice(-LOG_BYTES)}`);
  } finally {
    watching.abort();
    await node.remove(runtime);
    await runtime.close();
    api.close();
    await plane.remove();
    unmountBelow(directory);
    rmSync(directory, { recursive: true, force: true });
    alive.cancel();
  }
  for (const [change, number] of program.counts) counts.set(`changes: ${change}`, number);
  return { violations: [...node.crashes, ...history.violations, ...violations], counts };
}

/** Kills the agent at point after point, and checks everything after some kills, until the time is over. */
async function disturb(scene: Scene): Promise<void> {
  const { options, node, program, history, violations, random } = scene;
  const endMs = performance.now() + options.seconds * 1000;
  await settle(scene);
  while (performance.now() < endMs) {
    for (let kill = 0; kill < KILLS_BETWEEN_CHECKS && performance.now() < endMs; kill += 1) {
      if (random.next() < 0.6) await program.step();
      await runUntilKilled(scene);
    }
    await settle(scene);
    if (node.crashes.length + history.violations.length + violations.length >= MAX_VIOLATIONS) return;
  }
}

/** Runs the agent and kills it at a point, or at a random moment if the point is not reached. */
async function runUntilKilled(scene: Scene): Promise<void> {
  const { node, plan, random, program } = scene;
  const { reached } = node.points();
  const death = plan.next(reached);
  node.launch(death);
  // The duration of a start depends on the machine. Kills during the start have their own points.
  for (let up = false; node.isAlive && !up; up = await node.isUp()) await sleep(POLL_MS);
  const startMs = performance.now();
  const endMs = startMs + (death === undefined ? random.between(0, MAX_RUN_MS) : MAX_RUN_MS);
  const stepMs = startMs + random.between(0, MAX_RUN_MS / 3);
  let isStepped = false;
  while (node.isAlive && performance.now() < endMs) {
    await sleep(25);
    if (isStepped || performance.now() < stepMs) continue;
    isStepped = true;
    await program.step();
  }
  const isAtPoint = !node.isAlive;
  await node.stop('SIGKILL');
  count(scene, 'kills');
  count(scene, isAtPoint ? 'kills at a point' : 'kills at a random moment');
  scene.counts.set('points that were reached', reached.size);
  scene.counts.set('points at which the agent was killed', new Set(node.points().deaths).size);
  scene.options.onProgress?.(`killed ${isAtPoint ? `${death?.point} (${death?.turn})` : 'at a random moment'}`);
}

/** Runs the agent without kills until everything is settled, and then checks everything. */
async function settle(scene: Scene): Promise<void> {
  const { node, violations, options } = scene;
  const startMs = performance.now();
  node.launch(undefined);
  let problems: readonly string[] = [];
  let last: readonly string[] = [];
  do {
    await sleep(POLL_MS);
    last = problems;
    problems = await unsettled(scene, options);
  } while (problems.length > 0 && node.isAlive && performance.now() - startMs < MAX_SETTLING_MS);
  const tookMs = Math.round(performance.now() - startMs);
  scene.counts.set(
    'longest time until settled, ms',
    Math.max(tookMs, scene.counts.get('longest time until settled, ms') ?? 0),
  );
  if (problems.length > 0) violations.push(`after ${tookMs} ms: ${problems.join('; ')}\n${node.log.slice(-LOG_BYTES)}`);
  judge(scene);
  count(scene, 'judgements');
  options.onProgress?.(`settled after ${tookMs} ms; what settled last: ${last.join('; ')}`);
  await node.stop('SIGKILL');
  count(scene, 'kills');
}

const ROLES = new Map<string, Role>(Object.values(CONTAINERS).flatMap((of) => Object.entries(of)));

/** Checks all records. Each violation is reported once. */
function judge({ node, violations, counts }: Scene): void {
  const files = globSync('*.{prepare,main,side,work}', { cwd: node.records });
  const records = files.map((file): ContainerRecord => {
    const container = file.slice(file.lastIndexOf('.') + 1);
    const marks = parseMarks(readFileSync(join(node.records, file), 'utf8'));
    return { podUid: basename(file, `.${container}`), container, role: ROLES.get(container) ?? 'forever', marks };
  });
  counts.set('containers that ran', records.length);
  const starts = records.flatMap(({ marks }) => marks.filter(({ what }) => what === 'started'));
  counts.set('starts of containers', starts.length);
  for (const sentence of [...records.flatMap(judgeContainer), ...judgeOrder(records)])
    if (!violations.includes(sentence)) violations.push(`${sentence}`);
}
