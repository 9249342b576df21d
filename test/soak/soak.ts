/** The program of `npm run soak`. It runs the soak test that the flags select, and exits with 1 if a guarantee was violated. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { ETCD_FAULTS } from './etcd/faults.ts';
import { soakEtcd } from './etcd/run.ts';
import { violations } from './history.ts';
import { keepRecording, readRecording } from './recording.ts';
import { PAIR_FAULTS } from './standby/faults.ts';
import { soakPair } from './standby/run.ts';
import { SCENES, soakPower } from '../power/power-failures.ts';
import { FAULTS, soak, type SoakReport } from './run.ts';

const USAGE = `usage: npm run soak -- [--minutes N] [--seed S] [--only FAULT,FAULT] [--disk MIB]
       npm run soak -- --agent docker|containerd [--minutes N] [--seed S]
       npm run soak -- --etcd [--minutes N] [--seed S] [--only FAULT,FAULT] [--servers N] [--members N] [--other PROGRAM]
       npm run soak -- --standby [--minutes N] [--seed S] [--only FAULT,FAULT]
       npm run soak -- --power [--minutes N] [--seed S] [--only PROGRAM,PROGRAM]
       npm run soak -- --judge FILE

By default, clients write, read, list and watch while the process and the disk of the control plane have faults, and
the results that the clients saw are checked. With --agent, the agent is killed at one step after the other while pods
are created, deleted, crashed and resized on a private runtime, and the host, the API server and the records of the
containers are checked. With --etcd, several control planes share an etcd cluster, and both have faults while nodes run
pods; the results that the clients saw, the starts of pods and the addresses of services are checked. With --standby, the
first control plane and its standby have faults, the network between them is cut, and the standby is promoted. With
--power, the writes of a program are recorded, and the disk states that a power failure could leave are checked.

Exits with 1 if a guarantee was violated. The results that the clients saw are then kept in a file, which --judge checks
again. The default, --standby and --power need a C compiler; --agent and --standby need root.

  --agent RUNTIME  soak the agent on a private Docker or containerd
  --etcd           soak several control planes on one etcd, with the faults
                   ${Object.keys(ETCD_FAULTS).join(' ')}
  --servers N      how many control planes share etcd (default 3)
  --members N      how many members etcd has (default 3)
  --other PROGRAM  the last control plane is of another release: its bin/orchlet
  --standby        soak a first control plane and its standby, with the faults
                   ${Object.keys(PAIR_FAULTS).join(' ')}
  --power          soak against power failures the programs
                   ${Object.keys(SCENES).join(' ')}
  --minutes N      how long (default 1)
  --seed S         the same seed repeats the same operations and faults (default: random)
  --only LIST      only these faults, or with --power only these programs; the faults of the default run are
                   ${Object.keys(FAULTS).join(' ')}
                   (etcd, standby or power alone stands for --etcd, --standby or --power)
  --disk MIB       size of the disk of the control plane (default 64)
  --judge FILE     check the results that the clients of an earlier run saw
  --help           show this
`;

const { values } = parseArgs({
  options: {
    agent: { type: 'string' },
    etcd: { type: 'boolean', default: false },
    standby: { type: 'boolean', default: false },
    power: { type: 'boolean', default: false },
    servers: { type: 'string', default: '3' },
    members: { type: 'string', default: '3' },
    other: { type: 'string' },
    minutes: { type: 'string', default: '1' },
    only: { type: 'string', default: '' },
    disk: { type: 'string', default: '64' },
    seed: { type: 'string', default: '' },
    judge: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
});
const { agent } = values;
const PROGRAMS = ['etcd', 'standby', 'power'] as const;
const named = PROGRAMS.find((program) => program === values.only);
const isProgram = (program: (typeof PROGRAMS)[number]): boolean => values[program] || named === program;

function refuse(problem: string): never {
  process.stderr.write(`${problem}\n${USAGE}`);
  process.exit(2);
}

const seed = values.seed === '' ? Math.floor(Math.random() * 2 ** 31) : Number(values.seed);
const seconds = Number(values.minutes) * 60;
const started = performance.now();
const onProgress = (line: string): void =>
  void process.stdout.write(`${((performance.now() - started) / 1000).toFixed(1)} s ${line}\n`);

/** Starts a runtime, runs the soak test on it, and stops the runtime. */
async function soakOn(on: 'docker' | 'containerd'): Promise<SoakReport> {
  const { ensureImages, findRuntime, startPrivateContainerd } = await import('../../scripts/container-runtime.ts');
  const { soakAgent } = await import('./agent/run.ts');
  const directory = mkdtempSync(join(tmpdir(), 'orch-soak-'));
  try {
    const images = ensureImages(join(directory, 'images'), onProgress);
    const home = join(directory, on);
    const runtime =
      on === 'docker'
        ? await findRuntime({ directory: home, report: onProgress, privately: true })
        : startPrivateContainerd(home, images, onProgress);
    try {
      const socket = runtime.endpoint.replace('unix://', '');
      return await soakAgent({ on, socket, images, seconds, seed, onProgress });
    } finally {
      runtime.stop();
    }
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

function print({ counts, violations: found, recording }: SoakReport): void {
  for (const [what, number] of [...counts].sort(([a], [b]) => (a < b ? -1 : 1)))
    process.stdout.write(`${String(number).padStart(8)} ${what}\n`);
  for (const violation of found) process.stdout.write(`VIOLATION ${violation}\n`);
  process.stdout.write(
    found.length === 0 ? 'no violation\n' : `${found.length} violations; replay with --seed ${seed}\n`,
  );
  if (found.length > 0 && recording !== undefined && values.judge === undefined)
    process.stdout.write(`judge again: npm run soak -- --judge ${keepRecording(recording, seed)}\n`);
  process.exitCode = found.length === 0 ? 0 : 1;
}

if (values.help) process.stdout.write(USAGE);
else if (values.judge !== undefined) {
  const { operations, segments } = readRecording(values.judge);
  print({ violations: violations(operations, segments), counts: new Map([['operations', operations.length]]) });
} else {
  if (Number.isNaN(seed) || !(seconds > 0)) refuse('--minutes and --seed are numbers');
  if (agent !== undefined && agent !== 'docker' && agent !== 'containerd')
    refuse(`--agent is docker or containerd, not ${agent}`);
  process.stdout.write(`seed ${seed}\n`);
  const only = values.only === '' || named !== undefined ? [] : values.only.split(',');
  const run = (): Promise<SoakReport> => {
    if (agent !== undefined) return soakOn(agent);
    if (isProgram('power')) return soakPower({ seconds, seed, only, onProgress });
    if (isProgram('standby')) return soakPair({ seconds, seed, only, onProgress });
    if (!isProgram('etcd')) return soak({ seconds, seed, only, diskMib: Number(values.disk), onProgress });
    const sizes = { servers: Number(values.servers), members: Number(values.members) };
    return soakEtcd({ seconds, seed, only, ...sizes, other: values.other, onProgress });
  };
  print(await run());
}
