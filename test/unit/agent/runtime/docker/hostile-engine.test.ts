/** Tests the client of an engine that answers without an end, not at all, or with invalid times. */
import assert from 'node:assert/strict';
import { createServer, type RequestListener } from 'node:http';
import { join } from 'node:path';
import { it, type TestContext } from 'node:test';
import { ContainerStates } from '../../../../../agent/runtime/docker/container-states.ts';
import { createDockerClient, type DockerClient, isCode } from '../../../../../agent/runtime/docker/docker-client.ts';
import { followEvents } from '../../../../../agent/runtime/docker/engine-events.ts';
import { DockerImages } from '../../../../../agent/runtime/docker/images.ts';
import { PodNetwork } from '../../../../../agent/runtime/docker/network.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { formatTime } from '../../../../../api/machinery/clock.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { until } from '../../../../until.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

async function engine(t: TestContext, listener: RequestListener): Promise<{ client: DockerClient; clock: FakeClock }> {
  const socket = join(temporaryFolder(), 'docker.sock');
  const server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(socket, resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const clock = new FakeClock();
  return { client: createDockerClient(`unix://${socket}`, clock), clock };
}

/** Answers with a line that has no end. `closed` resolves to the bytes that the client took until it closed the connection. */
function endlessLine(): { readonly answer: RequestListener; readonly closed: Promise<number> } {
  const { promise: closed, resolve } = Promise.withResolvers<number>();
  const part = Buffer.alloc(1 << 20, 'x');
  const answer: RequestListener = (_request, response) => {
    let bytes = 0;
    response.writeHead(200, { 'content-type': 'application/json' });
    const more = (): void => {
      // The end is for clients that take everything.
      while (!response.destroyed && bytes < 64 << 20) {
        bytes += part.length;
        if (!response.write(part)) return;
      }
      response.end();
    };
    response.on('drain', more).on('close', () => resolve(bytes));
    more();
  };
  return { answer, closed };
}

it('a line of progress without an end fails the pull after 16 MiB', async (t) => {
  const { answer, closed } = endlessLine();
  const { client } = await engine(t, answer);
  const { signal } = new AbortController();
  await assert.rejects(
    new DockerImages(client).pull('a', undefined, { signal }),
    /a line of the response has more than 16777216 bytes/,
  );
  assert.ok((await closed) < 32 << 20);
});

for (const [what, bytesPerMinute, isGivenUp] of [
  ['nothing more', 0, true],
  ['a layer that drips', 60, true],
  ['a slow layer', 100_000, false],
] as const)
  it(`a pull of ${what} is ${isGivenUp ? '' : 'not '}given up after half an hour`, async (t) => {
    let report: (bytes: number) => void = () => undefined;
    const { promise: begun, resolve: onBegin } = Promise.withResolvers<void>();
    const { promise: closed, resolve: onClosed } = Promise.withResolvers<void>();
    const seen: string[] = [];
    const { client, clock } = await engine(t, (request, response) => {
      request.socket.once('close', () => onClosed());
      response.writeHead(200, { 'content-type': 'application/json' });
      report = (current) =>
        void response.write(
          `${JSON.stringify({ id: 'l', status: `Downloading ${current}`.slice(0, 11), progressDetail: { current } })}\n`,
        );
      report(0);
      onBegin();
    });
    const cancel = new AbortController();
    const onProgress = (text: string): void => void seen.push(text);
    const pull = new DockerImages(client).pull('a', undefined, { signal: cancel.signal, onProgress });
    const ended = pull.then(
      () => 'done',
      (error: unknown) => (error as Error).message,
    );
    await begun;
    // The first line restarts the half hour, which is over at the end of the last minute.
    for (let minute = 1; minute <= 30; minute += 1) {
      const lines = bytesPerMinute === 0 ? 1 : minute;
      await until('the last line is read', () => (seen.length >= lines ? true : undefined));
      await clock.advance(60_000);
      if (bytesPerMinute > 0) report(minute * bytesPerMinute);
    }
    if (!isGivenUp) cancel.abort(new Error('cancelled'));
    assert.match(await ended, isGivenUp ? /the pull was given up: no progress for 30 minutes/ : /abort|cancel/i);
    await closed;
  });

it('an event without an end interrupts the events after 16 MiB', async (t) => {
  const { answer, closed } = endlessLine();
  const { client, clock } = await engine(t, answer);
  const stop = new AbortController();
  const settled = (): Promise<void> => Promise.resolve();
  const followed = followEvents(
    { client, clock, logger: silentLogger, instance: 'x', settled },
    stop.signal,
    () => undefined,
    () => undefined,
  );
  assert.ok((await closed) < 32 << 20);
  stop.abort();
  await followed;
});

it('the connection of a call without an answer is closed when its time is over', async (t) => {
  const { promise: asked, resolve: onAsked } = Promise.withResolvers<void>();
  const { promise: closed, resolve: onClosed } = Promise.withResolvers<void>();
  const { client, clock } = await engine(t, (request, response) => {
    // The client has part of the answer.
    response.writeHead(200).write('[');
    request.socket.once('close', () => onClosed());
    onAsked();
  });
  const listing = client.call('list containers', () => client.docker.listContainers());
  const failed = assert.rejects(listing, (error) => isCode(error, 'timeout'));
  await asked;
  await clock.advance(120_000);
  await failed;
  await closed;
});

it('the removal of the pod network fails when its time is over', async (t) => {
  const { promise: asked, resolve: onAsked } = Promise.withResolvers<void>();
  const network = { Id: 'n', Name: 'orchlet-node-x', Containers: {} };
  const { client, clock } = await engine(t, (request, response) => {
    if (request.method === 'DELETE') {
      onAsked();
      return;
    }
    const found = request.url?.startsWith('/networks/n') === true ? network : [network];
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(found));
  });
  const logger = silentLogger;
  const options = { client, logger, instance: 'x', nodeName: 'node', awaitsCidr: false };
  const failed = assert.rejects(new PodNetwork(options).release(), (error) => isCode(error, 'timeout'));
  await asked;
  await clock.advance(120_000);
  await failed;
});

const TIMES = ['garbage', '', '0001-01-01T00:00:00Z', '+275760-09-13T00:00:00Z', '-000001-01-01T00:00:00Z'];

for (const time of TIMES)
  it(`a container with the time ${JSON.stringify(time)} has a status`, async (t) => {
    const labels = { 'io.kubernetes.docker.type': 'container', 'io.kubernetes.pod.uid': 'u' };
    const { client, clock } = await engine(t, (request, response) => {
      const isList = request.url?.startsWith('/containers/json') === true;
      const inspected = {
        ...{ Id: 'c', Created: time, Image: 'i', Config: { Labels: labels }, HostConfig: {} },
        State: { Running: false, Status: 'exited', ExitCode: 1, StartedAt: time, FinishedAt: time },
      };
      const listed = [{ Id: 'c', State: 'exited', Created: 1, ImageID: 'i', Labels: labels }];
      response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(isList ? listed : inspected));
    });
    const states = new ContainerStates({
      ...{ client, clock, images: new DockerImages(client), instance: 'x' },
      logSettled: () => Promise.resolve(),
    });
    const [status] = await states.containers({});
    for (const ms of [status?.createdAtMs, status?.startedAtMs, status?.finishedAtMs])
      assert.match(formatTime(ms ?? Number.NaN), /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
  });
