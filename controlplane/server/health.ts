/**
 * Serves `/healthz`, `/livez` and `/readyz`: named checks, each also under its own path, with kube-apiserver's texts
 * (`verbose`, `exclude`). `/metrics/slis` shows the results of the checks that the three paths ran, but not those of paths for
 * one check.
 */
import type { Clock } from '../../api/machinery/clock.ts';
import { limitedLogger } from '../../api/machinery/limited-logger.ts';
import { errorMessage } from '../../api/meta/error-message.ts';
import { quoteText } from '../../api/meta/quote.ts';
import { HealthResults } from '../../api/component/health-results.ts';
import type { Logger } from '../../api/component/logger.ts';
import { type PathHandler, type PathHandlers, sendMetrics, sendText } from './path-handlers.ts';
import type { ApiRequest } from './request.ts';
import type { HealthCheck } from '../model/health-check.ts';
import { TEXT_TYPE } from '../../api/http/media-types.ts';

/**
 * The options of the health paths. A path for all checks logs failures, and its response has only their names. A path for one
 * check logs nothing, and its response has the reason, as in kube-apiserver.
 */
export interface HealthOptions {
  readonly logger: Logger;
  readonly clock: Clock;
  /** The checks of `/healthz` and `/livez`, in this order, after `ping`. */
  readonly live: readonly HealthCheck[];
  /** The checks of `/readyz`, in this order, after `ping`. */
  readonly ready: readonly HealthCheck[];
}

const PING: HealthCheck = { name: 'ping', check: () => undefined };

/** Serves the paths. DELETE of `/metrics/slis` resets the results. */
export function installHealth(paths: PathHandlers, options: HealthOptions): void {
  const live = [PING, ...options.live];
  const logger = limitedLogger(options.logger, options.clock);
  const results = new HealthResults();
  install(paths, { name: 'healthz', checks: live, logger, results });
  install(paths, { name: 'livez', checks: live, logger, results });
  install(paths, { name: 'readyz', checks: [PING, ...options.ready], logger, results });
  paths.exact('/metrics/slis', (request) => {
    if (request.exchange.method !== 'DELETE') return sendMetrics(request, results.text());
    results.reset();
    return sendText(request, 200, 'metrics reset\n');
  });
}

interface HealthPath {
  readonly name: string;
  readonly checks: readonly HealthCheck[];
  readonly logger: Logger;
  readonly results: HealthResults;
}

function install(paths: PathHandlers, path: HealthPath): void {
  const { name, checks } = path;
  // kube-apiserver accepts every method.
  paths.exact(`/${name}`, allChecks(path));
  for (const one of checks) paths.exact(`/${name}/${one.name}`, singleCheck(one));
}

function singleCheck(one: HealthCheck): PathHandler {
  return async (request) => {
    const problem = await problemOf(one);
    if (problem === undefined) request.send(200, TEXT_TYPE, 'ok');
    else sendText(request, 500, `internal server error: ${problem}\n`);
  };
}

function allChecks({ name, checks, logger, results }: HealthPath): PathHandler {
  return async (request) => {
    const excluded = new Set(request.query.getAll('exclude'));
    let text = '';
    const failed: string[] = [];
    for (const one of checks) {
      if (excluded.delete(one.name)) {
        text += `[+]${one.name} excluded: ok\n`;
        continue;
      }
      const problem = await problemOf(one);
      results.observe(one.name, name, problem === undefined);
      if (problem === undefined) text += `[+]${one.name} ok\n`;
      else {
        failed.push(`${one.name}: ${problem}`);
        text += `[-]${one.name} failed: reason withheld\n`;
      }
    }
    if (excluded.size > 0) text += `warn: some health checks cannot be excluded: no matches for ${quoted(excluded)}\n`;
    if (failed.length > 0) {
      logger.warn({ check: name, failed }, 'A health check failed');
      sendText(request, 500, `${text}${name} check failed\n`);
      return;
    }
    sendText(request, 200, verbose(request) ? `${text}${name} check passed\n` : 'ok');
  };
}

const quoted = (names: ReadonlySet<string>): string => [...names].map((name) => quoteText(name)).join(',');

const verbose = (request: ApiRequest): boolean => request.query.has('verbose');

async function problemOf(one: HealthCheck): Promise<string | undefined> {
  try {
    await one.check();
    return undefined;
  } catch (error) {
    return errorMessage(error);
  }
}
