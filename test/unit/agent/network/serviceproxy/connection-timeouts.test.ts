import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { it } from 'node:test';
import { connectionTimeouts } from '../../../../../agent/network/serviceproxy/connection-timeouts.ts';
import { kernelParameterRecords } from '../../../../../agent/network/kernel-parameters.ts';
import { type Logger, silentLogger } from '../../../../../api/component/logger.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

it('connections that one side has closed are tracked for an hour, as with kube-proxy, and a reset can restore the kernel', async () => {
  const directory = temporaryFolder();
  const places = { records: join(directory, 'records'), parameters: join(directory, 'sys') };
  const netfilter = join(directory, 'sys/net/netfilter');
  mkdirSync(netfilter, { recursive: true });
  const [established, closeWait] = ['established', 'close_wait'].map((state) => `nf_conntrack_tcp_timeout_${state}`);
  writeFileSync(join(netfilter, `${established}`), '432000\n');
  writeFileSync(join(netfilter, `${closeWait}`), '60\n');
  await connectionTimeouts(silentLogger, places)();
  assert.equal(readFileSync(join(netfilter, `${established}`), 'utf8'), '86400\n');
  assert.equal(readFileSync(join(netfilter, `${closeWait}`), 'utf8'), '3600\n');
  assert.deepEqual(
    (await kernelParameterRecords(places)).map(({ name, before }) => [name, before]),
    [
      [`net/netfilter/${closeWait}`, '60'],
      [`net/netfilter/${established}`, '432000'],
    ],
  );
});

it('a kernel that tracks no connections is logged and no failure', async () => {
  const logged: unknown[] = [];
  const logger = { ...silentLogger, warn: (fields: unknown) => logged.push(fields) } as unknown as Logger;
  const directory = temporaryFolder();
  await connectionTimeouts(logger, { records: join(directory, 'records'), parameters: join(directory, 'sys') })();
  assert.equal(logged.length, 2);
});
