import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { RuntimeError } from '../../../../agent/runtime/runtime.ts';
import { type RuntimeChoice, selectRuntime, unmetCondition } from '../../../../agent/runtime/select-runtime.ts';
import { silentLogger } from '../../../../api/component/logger.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';

describe('the selection of the container runtime', () => {
  let directory = '';
  const servers: Server[] = [];
  beforeEach(async () => void (directory = await mkdtemp(join(tmpdir(), 'select-'))));
  afterEach(async () => {
    for (const server of servers.splice(0)) server.close();
    await rm(directory, { recursive: true, force: true });
  });

  const choice = (changes: Partial<RuntimeChoice>): RuntimeChoice => ({
    kind: '',
    dockerEndpoint: 'unix:///var/run/docker.sock',
    criEndpoint: '',
    nodeName: 'n',
    rootDirectory: directory,
    sandboxImage: '',
    clock: systemClock,
    logger: silentLogger,
    requestTimeoutMs: 5_000,
    knownCriSockets: [join(directory, 'none.sock')],
    ...changes,
  });
  const problem = async (changes: Partial<RuntimeChoice>): Promise<string> => {
    const error: unknown = await selectRuntime(choice(changes)).catch((thrown: unknown) => thrown);
    assert.ok(error instanceof RuntimeError);
    return error.message;
  };

  it('reports the sockets it tried, and how to select another', async () => {
    assert.equal(
      await problem({ kind: 'remote' }),
      `no container runtime: ${join(directory, 'none.sock')}: no response ` +
        '(name another socket with --container-runtime-endpoint or --docker-endpoint)',
    );
  });

  it('only tries the Docker socket that the user named', async () => {
    const endpoint = `unix://${join(directory, 'docker.sock')}`;
    assert.equal(
      await problem({ dockerEndpoint: endpoint }),
      `no container runtime: ${endpoint}: no response ` +
        '(name another socket with --container-runtime-endpoint or --docker-endpoint)',
    );
  });

  it('skips a socket that does not speak CRI', async () => {
    const path = join(directory, 'other.sock');
    const server = createServer((socket) => socket.destroy());
    servers.push(server);
    await new Promise<void>((resolve) => server.listen(path, resolve));
    assert.match(await problem({ kind: 'remote', knownCriSockets: [path] }), /other\.sock: rpc error: code = /);
  });

  it('ignores warnings of the runtime', () => {
    const condition = (type: string, ready: boolean) => ({ type, ready, reason: 'r', message: 'm' });
    const warning = condition('ContainerdHasNoDeprecationWarnings', false);
    const ready = ['RuntimeReady', 'NetworkReady'].map((type) => condition(type, true));
    assert.equal(unmetCondition([...ready, warning]), undefined);
    for (const type of ['RuntimeReady', 'NetworkReady'])
      assert.equal(unmetCondition([warning, condition(type, false)])?.type, type);
  });

  it('only tries the CRI socket that the user named', async () => {
    assert.match(await problem({ criEndpoint: `unix://${join(directory, 'named.sock')}` }), /^rpc error: code = /);
  });
});
