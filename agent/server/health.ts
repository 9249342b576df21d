/**
 * Serves `/healthz` and its checks: ping, log, syncloop and device-plugin. `?verbose` lists the checks, as every failure does,
 * and `?exclude=` omits some. All three ports share one count of the results, which `/metrics/slis` shows.
 */
import { METRICS_HEADERS } from '../../api/component/metrics.ts';
import type { HealthResults } from '../../api/component/health-results.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { newStatusError } from '../../api/meta/status-error.ts';
import type { PodHost } from './pod-host.ts';
import { TEXT_TYPE } from '../../api/http/media-types.ts';
import { quoteText } from '../../api/meta/quote.ts';

/** Serves the results of the health checks: the last one and the counts. DELETE resets them. */
export function installHealthResults(app: FastifyInstance, results: HealthResults): void {
  app.all('/metrics/slis', (request: FastifyRequest, reply: FastifyReply) => {
    if (request.method !== 'DELETE') return reply.headers(METRICS_HEADERS).send(results.text());
    results.reset();
    return reply.type(TEXT_TYPE).header('X-Content-Type-Options', 'nosniff').send('metrics reset\n');
  });
}

/** Adds `/healthz` and a path for each check, for all methods as the kubelet does. */
export function installHealth(app: FastifyInstance, host: PodHost, results: HealthResults): void {
  /** The name of each check, and its function, which returns the problem, or an empty string if the check succeeds. */
  const checks: readonly (readonly [string, () => string])[] = [
    ['ping', () => ''],
    ['log', () => ''],
    ['syncloop', () => host.syncLoopHealth()],
    ['device-plugin', () => host.devicePluginHealth()],
  ];
  app.all('/healthz', (request: FastifyRequest, reply: FastifyReply) => {
    const query = request.query as { readonly exclude?: string | readonly string[]; readonly verbose?: unknown };
    const excluded = new Set([query.exclude ?? []].flat());
    const lines: string[] = [];
    let failed = false;
    for (const [name, check] of checks) {
      if (excluded.delete(name)) {
        lines.push(`[+]${name} excluded: ok`);
        continue;
      }
      const isHealthy = check() === '';
      results.observe(name, 'healthz', isHealthy);
      lines.push(isHealthy ? `[+]${name} ok` : `[-]${name} failed: reason withheld`);
      failed ||= !isHealthy;
    }
    if (excluded.size > 0) {
      const names = [...excluded].map(quoteText).join(', ');
      lines.push(`warn: some health checks cannot be excluded: no matches for ${names}`);
    }
    reply.type(TEXT_TYPE).header('X-Content-Type-Options', 'nosniff');
    if (failed) return reply.code(500).send(`${lines.join('\n')}\nhealthz check failed\n`);
    return reply.send(query.verbose === undefined ? 'ok' : `${lines.join('\n')}\nhealthz check passed\n`);
  });
  for (const [name, check] of checks) {
    app.all(`/healthz/${name}`, (_request: FastifyRequest, reply: FastifyReply) => {
      const problem = check();
      if (problem === '') return reply.type(TEXT_TYPE).send('ok');
      throw newStatusError(500, 'InternalError', `internal server error: ${problem}\n`);
    });
  }
}
