/** Tests what Docker passes on of hostile registries and of their images, with an engine that answers as Docker does. */
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { it, type TestContext } from 'node:test';
import { inspect } from 'node:util';
import { boundResponses } from '../../../../../agent/runtime/docker/bounded-responses.ts';
import { createDockerClient, isCode } from '../../../../../agent/runtime/docker/docker-client.ts';
import { DockerImages } from '../../../../../agent/runtime/docker/images.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const HUGE = `unauthorized: ${'é'.repeat(2 << 20)}`;

for (const [where, status, body] of [
  ['in the progress of a pull', 200, `${JSON.stringify({ status: 'Pulling' })}\n${JSON.stringify({ error: HUGE })}\n`],
  ['as the answer to a pull', 500, JSON.stringify({ message: HUGE })],
] as const) {
  it(`a message of megabytes ${where} is cut before it becomes a status, an event and a line of the log`, async (t) => {
    const socket = join(temporaryFolder(), 'docker.sock');
    const engine = createServer((_request, response) => {
      response.writeHead(status, { 'content-type': 'application/json' }).end(body);
    });
    await new Promise<void>((resolve) => engine.listen(socket, resolve));
    t.after(() => {
      engine.closeAllConnections();
      engine.close();
    });
    const images = new DockerImages(createDockerClient(`unix://${socket}`, new FakeClock()));
    const { signal } = new AbortController();
    const error = await images.pull('registry.example/app:1', undefined, { signal }).then(
      () => assert.fail('pulled'),
      (reason: unknown) => reason as Error,
    );
    assert.ok(isCode(error, 'unauthorized'), error.message.slice(0, 200));
    assert.ok(error.message.length <= 8192, `${error.message.length} characters`);
    assert.ok(inspect(error).length < 100_000, 'with its cause');
  });
}

/** Returns the images of an engine with one image, and the requests that the engine got. */
async function engineWith(t: TestContext, config: object): Promise<{ images: DockerImages; requests: string[] }> {
  const socket = join(temporaryFolder(), 'docker.sock');
  const requests: string[] = [];
  const engine = createServer((request, response) => {
    requests.push(`${request.method} ${request.url}`);
    request.resume();
    response.writeHead(200, { 'content-type': 'application/json' });
    if (request.url?.startsWith('/images/create') === true) response.end('{"status":"Pulled"}\n');
    else response.end(JSON.stringify({ Id: 'sha256:1', Size: 1, Config: config }));
  });
  await new Promise<void>((resolve) => engine.listen(socket, resolve));
  t.after(() => {
    engine.closeAllConnections();
    engine.close();
  });
  return { images: new DockerImages(createDockerClient(`unix://${socket}`, new FakeClock())), requests };
}

const many = (count: number, value: unknown): object =>
  Object.fromEntries(Array.from({ length: count }, (_, at) => [`/${at}`, value]));

const FAULTS: Readonly<Record<string, object>> = {
  'labels of two megabytes': { Labels: { a: 'a'.repeat(2 << 20) } },
  'thousands of volumes': { Volumes: many(5000, {}) },
  'a user of ten thousand characters': { User: 'u'.repeat(10_000) },
};

for (const [what, config] of Object.entries(FAULTS)) {
  it(`an image with ${what} is removed after the pull, and no container is created of one`, async (t) => {
    const { images, requests } = await engineWith(t, config);
    const refused = (error: unknown): boolean => isCode(error, 'invalid') && (error as Error).message.length < 300;
    await assert.rejects(
      images.pull('registry.example/app:1', undefined, { signal: new AbortController().signal }),
      refused,
    );
    assert.equal(requests.at(-1), 'DELETE /images/registry.example/app:1');
    await assert.rejects(images.emptiedLabels('sha256:1'), refused);
  });
}

it('a container gets few labels of an image that has many, because each list of containers has them', async (t) => {
  const { images } = await engineWith(t, { Labels: { small: 'kept', large: 'l'.repeat(200_000), last: 'x' } });
  assert.deepEqual(await images.emptiedLabels('sha256:1'), { large: '', last: '' });
  const { images: others } = await engineWith(t, { Labels: many(20_000, 'v') });
  await assert.rejects(others.emptiedLabels('sha256:1'), /the names of its labels/);
});

it('a response of the engine that is too long fails its call, and others go on', async (t) => {
  const socket = join(temporaryFolder(), 'docker.sock');
  const engine = createServer((request, response) => {
    const isError = request.url?.startsWith('/images/create') === true;
    response.writeHead(isError ? 500 : 200, { 'content-type': 'application/json' });
    response.end(request.url === '/_ping' ? 'OK' : JSON.stringify({ message: 'm'.repeat(5000) }));
  });
  await new Promise<void>((resolve) => engine.listen(socket, resolve));
  t.after(() => {
    engine.closeAllConnections();
    engine.close();
  });
  const client = createDockerClient(`unix://${socket}`, new FakeClock());
  boundResponses(client.docker, { longestBytes: 1000 });
  await assert.rejects(new DockerImages(client).list(), /more than 1000 bytes/);
  const { signal } = new AbortController();
  await assert.rejects(new DockerImages(client).pull('a', undefined, { signal }), /more than 1000 bytes/);
  assert.equal(String(await client.call('ping', () => client.docker.ping())), 'OK');
});
