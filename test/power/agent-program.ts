/**
 * Writes the files that must be whole after a power failure with the code that owns them: those of an agent, and the keys of a
 * control plane. `power-failures.ts` records it.
 */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { readHostRecord, writeHostRecord } from '../../agent/host/host-record.ts';
import type { Pod } from '../../agent/base/model/pod.ts';
import { readPair, writePair } from '../../agent/node/certificates/certificate-store.ts';
import { CheckpointStore } from '../../agent/pods/checkpoints/checkpoint-store.ts';
import { readStateFile, StateWriter } from '../../agent/resources/managers/checkpoint-file.ts';
import { createSubmittedPods, type SubmittedPods } from '../../agent/sources/submitted-source.ts';
import { parseYaml, parseYamlDocuments } from '../../api/codec/yaml.ts';
import { type Logger, silentLogger } from '../../api/component/logger.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { loadKubeconfig, newKubeconfig, writeKubeconfig } from '../../api/client/kubeconfig.ts';
import { certificatePem, createCertificate } from '../../api/pki/certificate.ts';
import { generateKey, privateKeyPem } from '../../api/pki/signing.ts';
import { ensureAuthority } from '../../controlplane/security/pki/authority.ts';
import { prepareAuthority, switchAuthority } from '../../controlplane/security/pki/authority-rotation.ts';
import { ensurePki, type Pki } from '../../controlplane/security/pki/pki.ts';
import { ANY, type Found, GONE, notesIn } from './ledger.ts';

const TURNS = 6;
const PODS = ['a', 'b', 'c'];
const PAIR = 'kubelet-client';
const DAY_MS = 86_400_000;

const agentRoot = (folder: string): string => join(folder, 'var/agent');
const certificates = (folder: string): string => join(agentRoot(folder), 'pki');
const kubeconfig = (folder: string): string => join(folder, 'etc/orchlet/kubelet.conf');
const stateFile = (folder: string): string => join(agentRoot(folder), 'cpu_manager_state');
const controlPlaneKeys = (folder: string): string => join(folder, 'var/controlplane/pki');

const checkpoints = (folder: string, logger: Logger): CheckpointStore =>
  new CheckpointStore({ directory: join(agentRoot(folder), 'last-known'), clock: systemClock, logger });

const submitted = (folder: string, logger: Logger): SubmittedPods =>
  createSubmittedPods({
    directory: join(agentRoot(folder), 'submitted-pods'),
    nodeName: 'n',
    clock: systemClock,
    logger,
    yaml: { first: (text) => parseYaml(text), all: (text) => parseYamlDocuments(text) },
    reader: { read: (value) => ({ pod: value as Pod, warnings: [], errors: [] }) },
  });

async function openKeys(folder: string): Promise<Pki> {
  const pki = await ensurePki({
    directory: controlPlaneKeys(folder),
    clock: systemClock,
    logger: silentLogger,
    hosts: [],
    addresses: () => ['127.0.0.1'],
    serviceIp: undefined,
  });
  const path = join(folder, 'var/controlplane/admin.kubeconfig');
  await pki.keepAdminKubeconfig({ path, server: 'https://127.0.0.1:6443' });
  return pki;
}

const keysOf = (pki: Pki): string =>
  `${pki.material().ca.certificate.serialNumber}-${pki.serviceAccountKey.publicKeyPem.slice(100, 140)}`.replace(
    /\s/g,
    '',
  );

/** Returns the path of the new CA of a rotation. Its key is beside it. */
const preparedCa = (folder: string): string => join(folder, 'var/rotated/ca-next.crt');

/** Replaces a CA, unless an earlier life of the program has begun to. */
async function rotateCa(folder: string, note: (line: string) => void): Promise<void> {
  const directory = dirname(preparedCa(folder));
  if (existsSync(directory)) return;
  await ensureAuthority(directory, 'ca', 'former', systemClock.now());
  note('+ prepared-ca yes');
  await prepareAuthority(directory, systemClock.now());
  note('= prepared-ca yes');
  note(`+ prepared-ca ${GONE}`);
  await switchAuthority(directory, systemClock.now());
  note(`= prepared-ca ${GONE}`);
}

/** Writes a value and waits for what acknowledges it. */
type Write = (value: string) => Promise<void>;

/** Returns the writes by the key that the notes have for each file. */
async function writesOf(folder: string): Promise<Record<string, Write>> {
  const store = checkpoints(folder, silentLogger);
  const pods = submitted(folder, silentLogger);
  const state = new StateWriter({ path: stateFile(folder), what: 'state', clock: systemClock, logger: silentLogger });
  const keys = await generateKey('ecdsa');
  const pair = (commonName: string): { readonly certificatePem: string; readonly keyPem: string } => {
    const times = { notBeforeMs: systemClock.now() - DAY_MS, notAfterMs: systemClock.now() + DAY_MS };
    const raw = createCertificate({ subject: { commonName }, publicKey: keys.publicKey, ...times }, keys);
    return { certificatePem: certificatePem(raw), keyPem: privateKeyPem(keys.privateKey) };
  };
  // All pairs get the same time: the clock of a host may stand still or be set back.
  const now = new Date();
  const writes: Record<string, Write> = {
    state: (value) => state.write(() => ({ value })),
    pair: (value) => writePair(certificates(folder), PAIR, pair(value), now),
    kubeconfig: (value) =>
      writeKubeconfig(
        kubeconfig(folder),
        newKubeconfig({ cluster: 'c', server: `https://${value}`, ca: '', user: 'u', credentials: { token: 't' } }),
      ),
    host: (value) =>
      writeHostRecord(agentRoot(folder), {
        nodeName: value,
        dockerEndpoint: '',
        criEndpoint: '',
        podLogsDirectory: '',
        cgroupRoot: '',
        cgroupDriver: '',
      }),
  };
  for (const name of PODS) {
    writes[`checkpoint-${name}`] = async (value) => {
      if (value === GONE) store.delete(`pods/${name}`);
      else store.put(`pods/${name}`, () => ({ value, pad: 'x'.repeat(5000) }));
      await store.flush();
    };
    writes[`submitted-${name}`] = async (value) => {
      if (value !== GONE) await pods.submit(manifestOf(name, value));
      else if (pods.list().some(({ metadata }) => metadata.name === `${name}-n`))
        await pods.remove('default', `${name}-n`);
    };
  }
  return writes;
}

const manifestOf = (name: string, value: string): Buffer =>
  Buffer.from(
    JSON.stringify({
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name, labels: { value } },
      spec: { containers: [{ name: 'c', image: 'i' }] },
    }),
  );

async function run(folder: string): Promise<void> {
  const note = notesIn(join(folder, 'notes'));
  note(`+ keys ${ANY}`);
  note(`= keys ${keysOf(await openKeys(folder))}`);
  await rotateCa(folder, note);
  const writes = await writesOf(folder);
  for (let turn = 0; turn < TURNS; turn += 1)
    for (const [key, write] of Object.entries(writes)) {
      const value = turn % 3 === 2 && /-/.test(key) ? GONE : `v${process.pid}.${turn}`;
      note(`+ ${key} ${value}`);
      await write(value);
      note(`= ${key} ${value}`);
    }
  process.exit();
}

/** Reads the files as a starting agent and control plane do. Rejects if one of them is damaged. */
export async function readAgentFiles(folder: string): Promise<Found> {
  const values = new Map<string, string>();
  const logger: Logger = {
    ...silentLogger,
    warn: (fields, message) => assert.fail(`${message}: ${JSON.stringify(fields)}`),
    error: (fields, message) => assert.fail(`${message}: ${JSON.stringify(fields)}`),
  };
  const take = (key: string, value: unknown): void => {
    if (value !== undefined) values.set(key, String(value));
  };
  take('state', ((await readStateFile(stateFile(folder))) as { value?: string } | undefined)?.value);
  take('pair', (await readPair(certificates(folder), PAIR))?.leaf.subject.commonName);
  take('host', (await readHostRecord(agentRoot(folder)))?.nodeName);
  if (existsSync(kubeconfig(folder))) {
    const { clusters } = await loadKubeconfig(kubeconfig(folder));
    take('kubeconfig', clusters.get('c')?.value.server?.replace('https://', ''));
  }
  const store = checkpoints(folder, logger);
  for (const name of PODS)
    take(`checkpoint-${name}`, ((await store.get(`pods/${name}`)) as { value?: string } | undefined)?.value);
  for (const { metadata } of await readSubmitted(folder, logger))
    take(`submitted-${metadata.name.slice(0, -'-n'.length)}`, metadata.labels?.['value']);
  if (existsSync(preparedCa(folder))) take('prepared-ca', 'yes');
  const areThere = ['ca.crt', 'sa.key'].every((name) => existsSync(join(controlPlaneKeys(folder), name)));
  const keys = keysOf(await openKeys(folder));
  if (areThere) take('keys', keys);
  return { values, revision: 0 };
}

async function readSubmitted(folder: string, logger: Logger): Promise<readonly Pod[]> {
  const stop = new AbortController();
  const { promise, resolve, reject } = Promise.withResolvers<readonly Pod[]>();
  const running = submitted(folder, logger).run(stop.signal, resolve);
  running.catch(reject);
  const pods = await promise;
  stop.abort();
  await running;
  return pods;
}

const [folder] = process.argv.slice(2);
if (import.meta.main && folder !== undefined) await run(folder);
