/** `orchlet certs check|rotate|rotate-ca` shows, renews and replaces the certificates of the control plane on this host. */
import { existsSync } from 'node:fs';
import { readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { flag, UsageError } from '../../api/component/flags.ts';
import { formatDuration } from '../../api/component/duration.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { parseCertificates } from '../../api/pki/certificate.ts';
import {
  finishAuthority,
  prepareAuthority,
  switchAuthority,
} from '../../controlplane/security/pki/authority-rotation.ts';
import { STORAGE_FILE } from '../../controlplane/storage/backup/backup.ts';
import { ensurePki } from '../../controlplane/security/pki/pki.ts';
import { hostAddresses, hostNames } from '../../controlplane/start/host-address.ts';
import { silentLogger } from '../../api/component/logger.ts';
import { type Command, CommandError } from '../command-line/command.ts';
import { dataDirectoryFlag } from '../host/data-directory.ts';
import type { CommandIo } from '../command-line/io.ts';
import { withRightsOfOwner } from '../host/owner-rights.ts';
import { runningProcess } from '../host/processes.ts';
import { formatTable } from '../command-line/table.ts';

const DAY_MS = 86_400_000;

const flags = { dataDir: dataDirectoryFlag('Host') } as const;

const HEADER = ['CERTIFICATE', 'EXPIRES', 'LEFT', 'SUBJECT'];

interface Validity {
  readonly rows: readonly (readonly string[])[];
  /** Whether a certificate expires within a week. */
  readonly isUrgent: boolean;
}

async function validityOf(dataDirectory: string, nowMs: number): Promise<Validity> {
  const directory = join(dataDirectory, 'pki');
  if (!existsSync(directory))
    throw new CommandError(`${directory} does not exist: no control plane has run with this --data-dir`);
  const rows: string[][] = [];
  let isUrgent = false;
  for (const name of (await readdir(directory)).filter((entry) => entry.endsWith('.crt')).sort()) {
    const [certificate] = parseCertificates(await readFile(join(directory, name), 'utf8'));
    if (certificate === undefined) continue;
    const leftMs = certificate.notAfterMs - nowMs;
    isUrgent ||= leftMs < 7 * DAY_MS;
    const expires = new Date(certificate.notAfterMs).toISOString().slice(0, 19);
    rows.push([name.replace(/\.crt$/, ''), expires, leftText(leftMs), certificate.subject.commonName]);
  }
  return { rows, isUrgent };
}

function leftText(leftMs: number): string {
  if (leftMs <= 0) return 'EXPIRED';
  return leftMs > DAY_MS ? `${Math.floor(leftMs / DAY_MS)}d` : formatDuration(Math.floor(leftMs / 1000) * 1000);
}

export const certsCheck: Command = {
  description:
    'Shows the certificates of the control plane on this host and their remaining lifetime. Exits with 1 when one has less than a week left.',
  flags,
  examples: ['orchlet certs check'],
  async run(parsed, io) {
    const directory = String(parsed.values['dataDir']);
    const { rows, isUrgent } = await withRightsOfOwner(directory, io, () => validityOf(directory, io.clock.now()));
    io.stdout.write(formatTable(HEADER, rows));
    return isUrgent ? 1 : 0;
  },
};

/** The leaf certificates that are reissued; CAs and the service account key are kept. */
const LEAVES = ['apiserver', 'apiserver-kubelet-client', 'front-proxy-client'];

export const certsRotate: Command = {
  description:
    'Reissues the certificates of the control plane on this host from the same CAs. A running control plane loads them at once.',
  flags,
  examples: ['orchlet certs rotate'],
  async run(parsed, io) {
    const directory = String(parsed.values['dataDir']);
    await withRightsOfOwner(directory, io, () => rotate(directory, io));
    return 0;
  },
};

async function rotate(dataDirectory: string, io: CommandIo): Promise<void> {
  const directory = join(dataDirectory, 'pki');
  // Throws if the host has no control plane.
  await validityOf(dataDirectory, io.clock.now());
  const pid = await runningProcess(join(dataDirectory, `${STORAGE_FILE}.pid`));
  for (const name of LEAVES) await rm(join(directory, `${name}.crt`), { force: true });
  if (pid !== undefined) {
    // The control plane issues them itself because it knows its names and addresses.
    process.kill(pid, 'SIGHUP');
    const deadline = systemClock.monotonic() + 10_000;
    while (LEAVES.some((name) => !existsSync(join(directory, `${name}.crt`)))) {
      if (systemClock.monotonic() > deadline)
        throw new CommandError(
          `the control plane (process ${pid}) did not renew its certificates within 10 s: see its log`,
        );
      await systemClock.sleep(50);
    }
  } else {
    // The next start issues the certificate of the server again if its flags give it other names or another service range.
    await ensurePki({
      directory,
      clock: systemClock,
      logger: silentLogger,
      hosts: hostNames(),
      addresses: hostAddresses,
      serviceIp: '10.96.0.1',
    });
  }
  io.stdout.write(formatTable(HEADER, (await validityOf(dataDirectory, io.clock.now())).rows));
}

const caFlags = {
  ...flags,
  stage: flag({
    name: 'stage',
    type: 'string',
    default: '',
    choices: ['', 'prepare', 'switch', 'finish'],
    group: 'CA',
    help: 'The stage. prepare: trusts a new CA beside the old one. switch: the new CA signs, and the old one is still trusted. finish: the old CA is no longer trusted.',
  }),
} as const;

const NEXT_STEPS: ReadonlyMap<string, string> = new Map(
  Object.entries({
    prepare:
      'Both CAs are trusted now. Restart the control plane. Agents trust the new CA within ten minutes; give other clients the new admin.kubeconfig, or the certificates of pki/ca.crt. Then: orchlet certs rotate-ca --stage switch',
    switch:
      'The new CA signs from the next start on. Restart the control plane. Agents request new certificates within minutes; renew those of other clients. Then: orchlet certs rotate-ca --stage finish',
    finish: 'The old CA is removed. Restart the control plane; it then refuses certificates of the old CA.',
  }),
);

export const certsRotateCa: Command = {
  description:
    'Replaces the CA of the cluster without an interruption. Run it with --stage prepare, switch and finish, restart the control plane after each, and let agents and clients follow in between. The line that is printed says what comes next.',
  flags: caFlags,
  examples: ['orchlet certs rotate-ca --stage prepare'],
  async run(parsed, io) {
    const stage = String(parsed.values['stage']);
    if (stage === '') throw new UsageError('give the stage: --stage prepare, switch or finish');
    const dataDirectory = String(parsed.values['dataDir']);
    const directory = join(dataDirectory, 'pki');
    const nowMs = io.clock.now();
    await withRightsOfOwner(dataDirectory, io, async () => {
      // Throws if the host has no control plane.
      await validityOf(dataDirectory, nowMs);
      if (stage === 'prepare') await prepareAuthority(directory, nowMs);
      else if (stage === 'switch') await switchAuthority(directory, nowMs);
      else await finishAuthority(directory, nowMs);
    });
    io.stdout.write(`${NEXT_STEPS.get(stage) ?? ''}\n`);
    return 0;
  },
};
