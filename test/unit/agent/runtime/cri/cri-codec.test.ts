import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { buildCodecs } from '../../../../../api/grpc/codec.ts';
import { MESSAGES } from '../../../../../agent/runtime/cri/messages.ts';
import { METHODS, STOP_SIGNALS } from '../../../../../agent/runtime/cri/schema.ts';

describe('the wire format of CRI', () => {
  it('defines every message that a method or another message refers to', () => {
    const known = new Set<string>(Object.keys(MESSAGES));
    const scalars = new Set(['string', 'bool', 'bytes', 'int32', 'int64', 'uint32', 'uint64', 'map']);
    for (const [name, fields] of Object.entries(MESSAGES)) {
      const numbers = Object.values(fields).map((text: string) => text.split(' ')[0]);
      assert.equal(new Set(numbers).size, numbers.length, `${name} gives a number twice`);
      for (const text of Object.values<string>(fields)) {
        const type = (text.split(' ')[1] ?? '').replace('[]', '');
        assert.ok(scalars.has(type) || known.has(type), `${name} names ${type}`);
      }
    }
    for (const [, request, answer] of Object.values(METHODS)) assert.ok(known.has(request) && known.has(answer));
  });

  it('writes fields by their numbers, and repeated numbers packed', async () => {
    const codec = buildCodecs(MESSAGES);
    assert.equal(
      codec('PortForwardRequest')
        .encode({ podSandboxId: 'a', port: [80, 443] })
        .toString('hex'),
      '0a0161120350bb03',
    );
    assert.equal(
      codec('LinuxContainerResources')
        .encode({ cpuQuota: -1, memoryLimitInBytes: 2 ** 40 })
        .toString('hex'),
      '10ffffffffffffffffff0120808080808020',
    );
  });

  it('reads an absent field as the default of its type', async () => {
    const codec = buildCodecs(MESSAGES);
    const status = codec('ContainerStatus').decode(Buffer.from('0a0161', 'hex')) as Record<string, unknown>;
    assert.deepEqual(
      [status['id'], status['exitCode'], status['metadata'], status['mounts'], status['labels'], status['startedAt']],
      ['a', 0, null, [], {}, 0],
    );
  });

  it('skips fields that are not in the table', async () => {
    const codec = buildCodecs(MESSAGES);
    const answer = codec('ExecResponse').decode(Buffer.from('0a0175fa3f0178', 'hex')) as { url: string };
    assert.equal(answer.url, 'u');
  });

  it('numbers stop signals as CRI does', () => {
    assert.deepEqual(
      ['SIGKILL', 'SIGTERM', 'SIGUSR1', 'SIGRTMIN', 'SIGRTMAX'].map((name) => STOP_SIGNALS.indexOf(name)),
      [13, 23, 29, 35, 65],
    );
  });
});
