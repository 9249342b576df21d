/** `orchlet agent explain-eviction` prints the report of an agent or of the API server's proxy, as text and as JSON. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { after, before, beforeEach, describe, it } from 'node:test';
import type { EvictionReport } from '../../../../agent/resources/eviction/explain.ts';
import { newKubeconfig, writeKubeconfig } from '../../../../api/client/kubeconfig.ts';
import { certificatePem, createCertificate } from '../../../../api/pki/certificate.ts';
import { generateKey, privateKeyPem } from '../../../../api/pki/signing.ts';
import { orchlet, type Ran } from '../command-run.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

const SHORT: EvictionReport = {
  signals: [
    {
      signal: 'memory.available',
      available: '90Mi',
      capacity: '4Gi',
      thresholds: [
        { value: '100Mi', quantity: '100Mi', kind: 'hard', gracePeriodSeconds: 0, met: true },
        { value: '10%', quantity: '410Mi', kind: 'soft', gracePeriodSeconds: 30, met: false },
      ],
    },
    { signal: 'pid.available', available: '900', capacity: '1000', thresholds: [] },
  ],
  conditions: ['MemoryPressure'],
  pressure: { signal: 'memory.available', resource: 'memory', condition: 'MemoryPressure', supposed: false },
  nodeLevel: ['remove unused images'],
  ranking: [
    {
      pod: 'default/greedy',
      verdict: 'first',
      priority: 0,
      usage: '300Mi',
      request: '100Mi',
      why: 'it uses more than it requests',
      message: 'The node was low on resource: memory. ',
    },
    {
      pod: 'kube-system/core',
      verdict: 'spared',
      priority: 2_000_000_000,
      usage: '1Mi',
      request: '1Mi',
      why: 'it is critical',
    },
  ],
};
const CALM: EvictionReport = {
  signals: [],
  conditions: [],
  pressure: { signal: '', resource: '', condition: '', supposed: false },
  nodeLevel: [],
  ranking: [],
};

describe('orchlet agent explain-eviction', () => {
  const directory = temporaryFolder();
  const asked: string[] = [];
  let answer: { readonly status: number; readonly body: string };
  let close: () => void;
  let server: string;
  let ca: string;
  const explain = (...argv: readonly string[]): Promise<Ran> =>
    orchlet(['agent', 'explain-eviction', '--server', server, ...argv]);
  const answers = (report: EvictionReport): void => void (answer = { status: 200, body: JSON.stringify(report) });

  before(async () => {
    const keys = await generateKey('ecdsa');
    const template = {
      subject: { commonName: 'n' },
      publicKey: keys.publicKey,
      notBeforeMs: Date.UTC(2020, 0, 1),
      notAfterMs: Date.UTC(2100, 0, 1),
      names: { dns: [], ip: ['127.0.0.1'] },
    };
    ca = certificatePem(createCertificate(template, { privateKey: keys.privateKey }));
    const listener = createServer({ key: privateKeyPem(keys.privateKey), cert: ca }, (request, response) => {
      asked.push(request.url ?? '');
      response.writeHead(answer.status, { 'content-type': 'application/json' }).end(answer.body);
    });
    await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve));
    server = `https://127.0.0.1:${(listener.address() as AddressInfo).port}`;
    close = () => {
      listener.close();
      listener.closeAllConnections();
    };
  });
  beforeEach(() => void asked.splice(0));
  after(() => {
    close();
  });

  it('shows signals, the order of the pods and the reasons', async () => {
    answers(SHORT);
    const { code, stdout } = await explain();
    assert.equal(code, 0);
    assert.match(stdout, /^memory\.available +90Mi +4Gi +100Mi CROSSED, 10% for 30s$/m);
    assert.match(stdout, /^pid\.available +900 +1000 +-$/m);
    assert.match(stdout, /^Conditions: MemoryPressure\nPressure: memory\.available \(memory, MemoryPressure\)$/m);
    assert.match(stdout, /^First the node would remove unused images\.$/m);
    assert.match(stdout, /^default\/greedy +first +0 +300Mi +100Mi +it uses more than it requests$/m);
    assert.match(stdout, /^kube-system\/core +spared +2000000000 /m);
    assert.match(stdout, /\nIts status would show: The node was low on resource: memory\.\n$/);
    assert.deepEqual(asked, ['/eviction/explain']);
  });

  it('requests the report for a supposed pressure, and marks it as supposed', async () => {
    answers({ ...SHORT, pressure: { ...SHORT.pressure, supposed: true }, ranking: [] });
    const { stdout } = await explain('--signal', 'memory.available');
    assert.deepEqual(asked, ['/eviction/explain?signal=memory.available']);
    assert.match(stdout, /^Supposed: memory\.available/m);
    assert.match(stdout, /There is no pod to evict\.\n$/);
  });

  it('reports that a node is short of nothing, as text and as JSON', async () => {
    answers(CALM);
    assert.match((await explain()).stdout, /\nConditions: none\nThe node is short of nothing: no pod is evicted\./);
    assert.deepEqual(JSON.parse((await explain('--output', 'json')).stdout), CALM);
  });

  it('fails with the error of the agent', async () => {
    answer = { status: 403, body: 'Forbidden\n' };
    const { code, stderr } = await explain();
    assert.deepEqual([code, stderr], [1, 'orchlet: the agent answered 403: Forbidden\n']);
  });

  it('reaches a node by its name through the API server', async () => {
    answers(CALM);
    const kubeconfig = join(directory, 'kubeconfig');
    await writeKubeconfig(
      kubeconfig,
      newKubeconfig({ cluster: 'c', server, ca, user: 'u', credentials: { token: 't' } }),
    );
    const ran = await orchlet(['agent', 'explain-eviction', '--kubeconfig', kubeconfig, '--node', 'node-7']);
    assert.equal(ran.code, 0, ran.stderr);
    assert.deepEqual(asked, ['/api/v1/nodes/node-7/proxy/eviction/explain']);
    writeFileSync(kubeconfig, 'apiVersion: v1\nkind: Config\n');
    assert.equal((await orchlet(['agent', 'explain-eviction', '--kubeconfig', kubeconfig])).code, 1);
  });
});
