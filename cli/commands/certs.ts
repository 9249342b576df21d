/** `orchlet certs check|rotate`: the certificates of the control plane on this host. */
import { existsSync } from 'node:fs';
import { readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { flag } from '../../api/component/flags.ts';
import { formatDuration } from '../../api/component/duration.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { parseCertificates } from '../../api/pki/certificate.ts';
import {
  AuthorityStageError,
  finishAuthority,
  prepareAuthority,
  switchAuthority,
} from '../../controlplane/pki/authority-rotation.ts';
import { STORAGE_FILE } from '../../controlplane/backup/backup.ts';
import { ensurePki } from '../../controlplane/pki/pki.ts';
import { hostAddresses, hostNames } from '../../controlplane/host-address.ts';
import { silentLogger } from '../../api/component/logger.ts';
import { type Command, CommandError } from '../command.ts';
import { runningProcess } from '../processes.ts';

const DAY_MS = 86_400_000;

const flags = {
  dataDir: flag({
    name: 'data-dir',
    type: 'string',
    default: '/var/lib/orchlet',
    group: 'Host',
    help: 'Data directory of the control plane.',
  }),
} as const;

interface Row {
  readonly name: string;
  readonly expires: string;
  readonly left: string;
  readonly subject: string;
}

async function rows(dataDirectory: string): Promise<{ readonly rows: Row[]; readonly urgent: boolean }> {
  const directory = join(dataDirectory, 'pki');
  if (!existsSync(directory))
    throw new CommandError(`${directory} does not exist: no control plane has run with this --data-dir`);
  const found: Row[] = [];
  let urgent = false;
  for (const name of (await readdir(directory)).filter((entry) => entry.endsWith('.crt')).sort()) {
    const [certificate] = parseCertificates(await readFile(join(directory, name), 'utf8'));
    if (certificate === undefined) continue;
    const leftMs = certificate.notAfterMs - systemClock.now();
    urgent ||= leftMs < 7 * DAY_MS;
    found.push({
      name: name.replace(/\.crt$/, ''),
      expires: new Date(certificate.notAfterMs).toISOString().slice(0, 19),
      left:
        leftMs <= 0
          ? 'EXPIRED'
          : leftMs > DAY_MS
            ? `${Math.floor(leftMs / DAY_MS)}d`
            : formatDuration(Math.floor(leftMs / 1000) * 1000),
      subject: certificate.subject.commonName,
    });
  }
  return { rows: found, urgent };
}

function print(table: readonly Row[]): void {
  const all = [{ name: 'CERTIFICATE', expires: 'EXPIRES', left: 'LEFT', subject: 'SUBJECT' }, ...table];
  const columns = ['name', 'expires', 'left', 'subject'] as const;
  const widths = columns.map((column) => Math.max(...all.map((row) => row[column].length)));
  for (const row of all)
    process.stdout.write(
      `${columns
        .map((column, index) => row[column].padEnd(widths[index] ?? 0))
        .join('   ')
        .trimEnd()}\n`,
    );
}

export const certsCheck: Command = {
  name: 'certs check',
  summary: 'show when certificates expire',
  description:
    'Shows the certificates of the control plane on this host and what is left of their life. Ends with 1 when one has less than a week left.',
  flags,
  examples: ['orchlet certs check'],
  async run(parsed) {
    const found = await rows(String(parsed.values['dataDir']));
    print(found.rows);
    return found.urgent ? 1 : 0;
  },
};

/** Leaves that are made anew; authorities and the service-account key stay. */
const LEAVES = ['apiserver', 'apiserver-kubelet-client', 'front-proxy-client'];

export const certsRotate: Command = {
  name: 'certs rotate',
  summary: 'renew the certificates now',
  description:
    'Makes the certificates of the control plane on this host anew, with the same authorities. A running control plane takes them up at once.',
  flags,
  examples: ['orchlet certs rotate'],
  async run(parsed) {
    const dataDirectory = String(parsed.values['dataDir']);
    const directory = join(dataDirectory, 'pki');
    await rows(dataDirectory);
    const pid = await runningProcess(join(dataDirectory, `${STORAGE_FILE}.pid`));
    for (const name of LEAVES) await rm(join(directory, `${name}.crt`), { force: true });
    if (pid !== undefined) {
      // The control plane knows its own names and addresses: it makes them itself.
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
      await ensurePki({
        directory,
        clock: systemClock,
        logger: silentLogger,
        hosts: hostNames(),
        addresses: hostAddresses,
        serviceIp: '10.96.0.1',
      });
    }
    print((await rows(dataDirectory)).rows);
    return 0;
  },
};

const caFlags = {
  ...flags,
  stage: flag({
    name: 'stage',
    type: 'string',
    default: '',
    choices: ['', 'prepare', 'switch', 'finish'],
    group: 'Authority',
    help: 'What to do. prepare: a new authority is trusted beside the old one. switch: the new one signs, the old one is trusted still. finish: the old one is trusted no more.',
  }),
} as const;

const NEXT_STEPS: Readonly<Record<string, string>> = {
  prepare:
    'Both authorities are trusted now. Restart the control plane. Agents take the new one up within ten minutes; give other clients the new admin.kubeconfig, or the certificates of pki/ca.crt. Then: orchlet certs rotate-ca --stage switch',
  switch:
    'The new authority signs from the next start on. Restart the control plane. Agents ask it for new certificates within minutes; renew those of other clients. Then: orchlet certs rotate-ca --stage finish',
  finish: 'The old authority is gone. Restart the control plane: what it signed is refused from then on.',
};

export const certsRotateCa: Command = {
  name: 'certs rotate-ca',
  summary: 'replace the authority of the cluster, in three stages',
  description:
    'Replaces the certificate authority of the cluster with an overlap, so that nothing is cut off: run it with --stage prepare, switch and finish, restart the control plane after each, and let agents and clients follow in between. The line that is printed says what comes next.',
  flags: caFlags,
  examples: ['orchlet certs rotate-ca --stage prepare'],
  async run(parsed) {
    const directory = join(String(parsed.values['dataDir']), 'pki');
    await rows(String(parsed.values['dataDir']));
    const stage = String(parsed.values['stage']);
    try {
      if (stage === 'prepare') await prepareAuthority(directory, systemClock.now());
      else if (stage === 'switch') await switchAuthority(directory, systemClock.now());
      else if (stage === 'finish') await finishAuthority(directory, systemClock.now());
      else throw new CommandError('say which stage: --stage prepare, switch or finish');
    } catch (error) {
      if (error instanceof AuthorityStageError) throw new CommandError(error.message, { cause: error });
      throw error;
    }
    process.stdout.write(`${NEXT_STEPS[stage] ?? ''}\n`);
    return 0;
  },
};
