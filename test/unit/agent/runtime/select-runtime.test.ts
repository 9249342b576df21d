import assert from 'node:assert/strict';
import { createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { MESSAGES } from '../../../../agent/runtime/cri/messages.ts';
import { METHODS } from '../../../../agent/runtime/cri/schema.ts';
import { RuntimeError } from '../../../../agent/runtime/runtime.ts';
import { type RuntimeChoice, selectRuntime, unmetCondition } from '../../../../agent/runtime/select-runtime.ts';
import { silentLogger } from '../../../../api/component/logger.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { serveGrpc } from '../../../fakes/grpc-plugin.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

describe('the selection of the container runtime', () => {
  let directory = '';
  const servers: Server[] = [];
  const closing: (() => Promise<void>)[] = [];
  beforeEach(() => void (directory = temporaryFolder()));
  afterEach(async () => {
    for (const server of servers.splice(0)) server.close();
    for (const close of closing.splice(0)) await close();
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

  /** Resolves to a CRI runtime that is ready, and has no network. */
  async function withoutNetwork(): Promise<string> {
    const path = join(directory, 'cri.sock');
    const condition = (type: string, status: boolean) => ({
      type,
      status,
      reason: 'r',
      message: 'cni plugin not initialized',
    });
    const close = await serveGrpc(path, [
      {
        messages: MESSAGES,
        methods: Object.fromEntries(
          Object.entries(METHODS).map(([name, [service, ...types]]) => [name, [`runtime.v1.${service}`, ...types]]),
        ) as never,
        implementation: {
          version: () => ({ version: '0.1.0', runtimeName: 'fake', runtimeVersion: '1', runtimeApiVersion: 'v1' }),
          status: () => ({
            status: { conditions: [condition('RuntimeReady', true), condition('NetworkReady', false)] },
            info: {},
          }),
          listPodSandbox: () => ({ items: [] }),
        },
      },
    ]);
    closing.push(close);
    return path;
  }

  it('takes a CRI runtime that lacks nothing but a network only if the agent can configure one', async () => {
    const path = await withoutNetwork();
    assert.match(await problem({ kind: 'remote', knownCriSockets: [path] }), /cri\.sock: cni plugin not initialized/);
    const runtime = await selectRuntime(choice({ kind: 'remote', knownCriSockets: [path], providesNetwork: true }));
    assert.equal((await runtime.info()).name, 'fake');
    await runtime.close();
  });

  it('prefers Docker to such a runtime, which may be that of Docker itself', async () => {
    const path = await withoutNetwork();
    const both = { knownCriSockets: [path], providesNetwork: true };
    const alone = await selectRuntime(
      choice({ ...both, defaultDockerEndpoint: `unix://${join(directory, 'none.sock')}` }),
    );
    assert.equal((await alone.info()).name, 'fake');
    await alone.close();
    const docker = join(directory, 'docker.sock');
    const server = createServer((socket) => socket.destroy());
    servers.push(server);
    await new Promise<void>((resolve) => server.listen(docker, resolve));
    await assert.rejects(
      selectRuntime(choice({ ...both, defaultDockerEndpoint: `unix://${docker}` })),
      /Docker daemon/,
    );
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
