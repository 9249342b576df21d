/**
 * Checks the records of containers and watches for violations by the agent: no attempt of a container starts twice, nothing
 * starts after it was stopped, init containers run once and before the others, restart counts never decrease, a terminal phase
 * is final, and a deleted pod stays deleted. Pure.
 */

/** A line of a container: it started, is alive, exited by itself, or was stopped by SIGTERM. */
export interface Mark {
  readonly what: 'started' | 'alive' | 'exited' | 'stopped';
  /** The time on the host's uptime clock. */
  readonly atSeconds: number;
  /** The start time of the process, which distinguishes the processes of a container. */
  readonly process: string;
}

/** `init` and `once` end by themselves; `forever` ends when it is stopped or crashes. */
export type Role = 'init' | 'once' | 'forever';

export interface ContainerRecord {
  readonly podUid: string;
  readonly container: string;
  readonly role: Role;
  readonly marks: readonly Mark[];
}

const LETTERS: Readonly<Record<string, Mark['what']>> = { S: 'started', A: 'alive', X: 'exited', T: 'stopped' };

/**
 * The time within which a runtime kills a process whose start it cancels, because the client has disappeared. A process that
 * lives longer was started successfully.
 */
const TAKEN_BACK_SECONDS = 3;

/** Parses lines of a letter, a time and a process. Incomplete lines are omitted. */
export function parseMarks(text: string): Mark[] {
  return text.split('\n').flatMap((line) => {
    const [letter = '', time = '', process = ''] = line.split(' ');
    const what = LETTERS[letter];
    return what === undefined || process === '' ? [] : [{ what, atSeconds: Number(time), process }];
  });
}

/** Returns the violations in the marks of one container, each as a sentence. */
export function judgeContainer({ podUid, container, role, marks }: ContainerRecord): string[] {
  const found: string[] = [];
  const name = `container ${container} of pod ${podUid}`;
  const story = marks
    .filter(({ what }) => what !== 'alive')
    .map(({ what, atSeconds }) => `${what} at ${atSeconds}`)
    .join(', ');
  const processes = [...Map.groupBy(marks, ({ process }) => process).values()];
  let isStopped = false;
  for (const [at, process] of processes.entries()) {
    const [first, last] = [process[0], process.at(-1)];
    const next = processes[at + 1]?.[0];
    if (first === undefined || last === undefined) continue;
    if (first.what !== 'started') found.push(`${name} ended without a start: ${story}`);
    if (isStopped) found.push(`${name} started after it was stopped: ${story}`);
    isStopped ||= last.what === 'stopped';
    if (next === undefined || last.what === 'exited') continue;
    const livedSeconds = last.atSeconds - first.atSeconds;
    if (last.atSeconds > next.atSeconds) found.push(`${name} ran twice at one time: ${story}`);
    else if (last.what === 'alive' && livedSeconds > TAKEN_BACK_SECONDS)
      found.push(`${name} ran for ${livedSeconds.toFixed(1)} s and was started again without an exit: ${story}`);
  }
  const exits = marks.filter(({ what }) => what === 'exited').length;
  if (role !== 'forever' && exits > 1) found.push(`${name} ran ${exits} times, but had to run once: ${story}`);
  return found;
}

/** Checks that init containers exit before the first other container of their pod starts. */
export function judgeOrder(records: readonly ContainerRecord[]): string[] {
  const found: string[] = [];
  for (const [podUid, ofPod] of Map.groupBy(records, (record) => record.podUid)) {
    const others = ofPod.filter(({ role }) => role !== 'init').flatMap(({ marks }) => marks[0]?.atSeconds ?? []);
    const first = Math.min(Infinity, ...others);
    for (const { container, marks } of ofPod.filter(({ role }) => role === 'init')) {
      const exit = marks.find(({ what }) => what === 'exited')?.atSeconds ?? Infinity;
      if (first < exit)
        found.push(`pod ${podUid}: a container started at ${first}, before ${container} exited (${exit})`);
    }
  }
  return found;
}

export interface SeenPod {
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED';
  readonly name: string;
  readonly uid: string;
  readonly phase: string;
  /** The restart counts by container. */
  readonly restarts: ReadonlyMap<string, number>;
}

const TERMINAL = new Set(['Succeeded', 'Failed']);
const ORDER = ['', 'Pending', 'Running'];

/** Checks the events of one watch as they arrive. */
export class PodHistory {
  readonly #last = new Map<string, SeenPod>();
  readonly #deleted = new Set<string>();
  readonly violations: string[] = [];

  /** Compares a state of a pod with the earlier ones, and adds what violates the rules to `violations`. */
  see(pod: SeenPod): void {
    const name = `pod ${pod.name} (${pod.uid})`;
    if (this.#deleted.has(pod.uid)) this.violations.push(`${name} was deleted and came back`);
    const before = this.#last.get(pod.uid);
    this.#last.set(pod.uid, pod);
    if (pod.type === 'DELETED') this.#deleted.add(pod.uid);
    if (before === undefined) return;
    if (TERMINAL.has(before.phase) && pod.phase !== before.phase)
      this.violations.push(`${name} went from ${before.phase} to ${pod.phase}`);
    if (ORDER.includes(pod.phase) && ORDER.indexOf(pod.phase) < ORDER.indexOf(before.phase))
      this.violations.push(`${name} went back from ${before.phase} to ${pod.phase}`);
    for (const [container, count] of before.restarts) {
      const now = pod.restarts.get(container);
      if (now !== undefined && now < count)
        this.violations.push(`the restarts of ${container} in ${name} fell from ${count} to ${now}`);
    }
  }
}
