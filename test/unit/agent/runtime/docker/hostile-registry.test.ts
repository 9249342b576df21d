/** Tests what Docker passes on of a registry that answers a pull with megabytes, with an engine that answers as Docker does. */
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { it } from 'node:test';
import { inspect } from 'node:util';
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
