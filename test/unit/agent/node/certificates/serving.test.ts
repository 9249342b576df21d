/** The self-signed certificate of the agent's server follows the addresses of the node, and keeps its key. */
import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { it, type TestContext } from 'node:test';
import { readPair, writePair } from '../../../../../agent/node/certificates/certificate-store.ts';
import {
  initialServingPair,
  keepSelfSigned,
  type ServingPair,
} from '../../../../../agent/node/certificates/serving.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { parseCertificates } from '../../../../../api/pki/certificate.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { until } from '../../../../until.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

async function setUp(t: TestContext) {
  const directory = temporaryFolder();
  const clock = new FakeClock(Date.parse('2027-01-01T00:00:00Z'));
  const ending = new AbortController();
  const state = { addresses: ['10.0.0.1'], rotated: [] as ServingPair[] };
  const options = {
    certificateDirectory: directory,
    certificateFile: '',
    keyFile: '',
    nodeName: 'n',
    hostname: 'n',
    addresses: () => state.addresses,
    clock,
    logger: silentLogger,
    random: () => 0.5,
    onRotated: (pair: ServingPair) => void state.rotated.push(pair),
  };
  const keep = (): void => {
    const running = keepSelfSigned(options, ending.signal);
    t.after(async () => {
      ending.abort();
      await clock.advance(1000);
      await running;
    });
  };
  const rotations = async (wanted: number): Promise<void> => {
    await until('the certificate', async () => {
      await clock.advance(60_000);
      return state.rotated.length >= wanted ? true : undefined;
    });
  };
  const hours = async (): Promise<void> => {
    for (let turn = 0; turn < 120; turn++) {
      await clock.advance(60_000);
      await readdir(directory);
    }
  };
  return { directory, clock, options, state, keep, rotations, hours };
}
const addressesOf = ({ certificatePem }: ServingPair): readonly string[] =>
  parseCertificates(certificatePem)[0]?.names.ip ?? [];

it('a changed address gets into the certificate, which keeps its key', async (t) => {
  const { options, state, keep, rotations, hours } = await setUp(t);
  const first = await initialServingPair(options);
  assert.deepEqual(addressesOf(first), ['10.0.0.1']);
  keep();
  state.addresses = ['10.0.0.2', 'fd00::2'];
  await rotations(1);
  const [renewed] = state.rotated;
  assert.ok(renewed !== undefined);
  assert.deepEqual(addressesOf(renewed), ['10.0.0.2', 'fd00::2']);
  assert.equal(renewed.keyPem.trim(), first.keyPem.trim());
  await hours();
  assert.equal(state.rotated.length, 1, 'a certificate that fits stays');
});

it('it is renewed before it expires, without a restart', async (t) => {
  const { options, state, keep, rotations, clock } = await setUp(t);
  const first = await initialServingPair(options);
  keep();
  await clock.advance(330 * 24 * 3_600_000);
  await rotations(1);
  const [before, after] = [first, state.rotated[0]].map((pair) => parseCertificates(pair?.certificatePem ?? '')[0]);
  assert.ok((after?.notAfterMs ?? 0) > (before?.notAfterMs ?? Infinity));
});

it('a certificate of the cluster is not replaced', async (t) => {
  const { options, state, keep, hours, directory, clock } = await setUp(t);
  const first = await initialServingPair(options);
  await writePair(directory, 'kubelet-server', first, new Date(clock.now()));
  keep();
  state.addresses = ['10.0.0.2'];
  await hours();
  assert.deepEqual(state.rotated, []);
  assert.deepEqual((await readPair(directory, 'kubelet-self-signed'))?.leaf.names.ip, ['10.0.0.1']);
});

it('an expired certificate of the cluster gives way to the stored self-signed one, which is renewed', async (t) => {
  const { options, state, keep, rotations, directory, clock } = await setUp(t);
  const expired = await initialServingPair(options);
  await writePair(directory, 'kubelet-server', expired, new Date(clock.now()));
  clock.set(400 * 24 * 3_600_000);
  const selfSigned = await initialServingPair(options);
  assert.notEqual(selfSigned.keyPem.trim(), expired.keyPem.trim());
  const restarted = await initialServingPair(options);
  assert.equal(restarted.keyPem.trim(), selfSigned.keyPem.trim());
  keep();
  state.addresses = ['10.0.0.2'];
  await rotations(1);
  assert.deepEqual(state.rotated.map(addressesOf), [['10.0.0.2']]);
});
