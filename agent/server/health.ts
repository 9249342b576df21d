/**
 * `/healthz` and its parts: ping, log and the sync loop. `?verbose` lists the checks, `?exclude=` leaves some out; a failure
 * lists them always. Installed on all three ports.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { PodHost } from '../core-types.ts';

const TEXT_TYPE = 'text/plain; charset=utf-8';

export function installHealth(app: FastifyInstance, host: PodHost): void {
  /** What is wrong; '' where nothing is. */
  const checks: readonly (readonly [string, () => string])[] = [
    ['ping', () => ''],
    ['log', () => ''],
    ['syncloop', () => host.syncLoopHealth()],
  ];
  app.all('/healthz', (request: FastifyRequest, reply: FastifyReply) => {
    const query = request.query as { readonly exclude?: string | readonly string[]; readonly verbose?: unknown };
    const excluded = new Set([query.exclude ?? []].flat());
    const lines: string[] = [];
    let failed = false;
    for (const [name, look] of checks) {
      if (excluded.delete(name)) lines.push(`[+]${name} excluded: ok`);
      else if (look() === '') lines.push(`[+]${name} ok`);
      else {
        failed = true;
        lines.push(`[-]${name} failed: reason withheld`);
      }
    }
    if (excluded.size > 0) {
      const names = [...excluded].map((name) => JSON.stringify(name)).join(', ');
      lines.push(`warn: some health checks cannot be excluded: no matches for ${names}`);
    }
    reply.type(TEXT_TYPE).header('X-Content-Type-Options', 'nosniff');
    if (failed) return reply.code(500).send(`${lines.join('\n')}\nhealthz check failed\n`);
    return reply.send(query.verbose === undefined ? 'ok' : `${lines.join('\n')}\nhealthz check passed\n`);
  });
  for (const [name, look] of checks) {
    app.all(`/healthz/${name}`, (_request: FastifyRequest, reply: FastifyReply) => {
      const problem = look();
      reply.type(TEXT_TYPE).header('X-Content-Type-Options', 'nosniff');
      return problem === '' ? reply.send('ok') : reply.code(500).send(`internal server error: ${problem}\n`);
    });
  }
}
