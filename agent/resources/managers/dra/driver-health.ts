/**
 * Follows the health of devices that DRA drivers report in a stream. Without a report, after the timeout of the last one,
 * and when the stream has ended, the health of a device is unknown. Rules and limits are those of the kubelet.
 */
import type { Logger } from '../../../../api/component/logger.ts';
import { background } from '../../../../api/machinery/background.ts';
import { type Clock, whenAborted } from '../../../../api/machinery/clock.ts';
import { periodically } from '../../../../api/machinery/periodic.ts';
import { RateLimiter } from '../../../../api/machinery/rate-limiter.ts';
import { connectGrpc } from '../../../../api/grpc/grpc-client.ts';
import type { IncomingOf } from '../../../../api/grpc/messages.ts';
import { HEALTH_MESSAGES, HEALTH_METHODS, HEALTH_SERVICE } from './schema.ts';

const RETRY_MS = 5_000;
/** How long a report counts if the driver sends no further one and names no time itself. */
const DEFAULT_TIMEOUT_MS = 30_000;
const REPORT_RATE = { qps: 10, burst: 10 };
/** The maximum number of characters of a message that the status of a pod shows. */
const LONGEST_MESSAGE = 1024;
/** The maximum number of devices of one driver whose reports are kept. */
const MAX_DEVICES = 10_000;
const HEALTHS = ['Unknown', 'Healthy', 'Unhealthy'] as const;

/** The health of a device as the status of a pod shows it. */
export interface DeviceHealth {
  readonly health: (typeof HEALTHS)[number];
  readonly message?: string;
}

type Report = IncomingOf<typeof HEALTH_MESSAGES, 'DeviceHealth'>;

interface ReportedHealth extends DeviceHealth {
  readonly timeoutMs: number;
  readonly untilMs: number;
}

interface DriverHealthOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  /** Called after a report with the driver, and the keys of the devices that differ from the last one or are dropped. */
  readonly onChange: (driver: string, devices: ReadonlySet<string>) => void;
}

const UNKNOWN: DeviceHealth = { health: 'Unknown' };

/** Returns a key from the pool and the name of a device. */
export function healthKey(pool: string, device: string): string {
  return `${pool}/${device}`;
}

/** Owns a stream for each driver that reports health. A stream that ends is opened again. */
export class DriverHealth {
  readonly #options: DriverHealthOptions;
  readonly #watches = new Map<string, AbortController>();
  readonly #drivers = new Map<string, ReadonlyMap<string, ReportedHealth>>();

  constructor(options: DriverHealthOptions) {
    this.#options = options;
  }

  /** Waits until the signal aborts, and stops all streams. */
  async run(signal: AbortSignal): Promise<void> {
    await whenAborted(signal);
    for (const watch of this.#watches.values()) watch.abort();
    this.#watches.clear();
  }

  /** Follows an instance of a driver, if it offers the service. */
  watch(driver: string, socket: string, services: readonly string[]): void {
    this.unwatch(socket);
    if (!services.includes(HEALTH_SERVICE)) return;
    const watch = new AbortController();
    this.#watches.set(socket, watch);
    const { logger } = this.#options;
    const what = 'Following the health of devices';
    background(this.#follow(driver, socket, watch.signal), { logger, what, signal: watch.signal });
  }

  unwatch(socket: string): void {
    this.#watches.get(socket)?.abort();
    this.#watches.delete(socket);
  }

  /** Returns what the driver reported last of the device, or `Unknown` if it reported nothing or the report has expired. */
  healthOf(driver: string, device: string): DeviceHealth {
    const reported = this.#drivers.get(driver)?.get(device);
    if (reported === undefined || this.#options.clock.monotonic() > reported.untilMs) return UNKNOWN;
    const { health, message } = reported;
    return message === undefined ? { health } : { health, message };
  }

  async #follow(driver: string, socket: string, signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#options;
    const receive = async (): Promise<void> => {
      try {
        await this.#receive(driver, socket, signal);
      } finally {
        this.#drivers.delete(driver);
      }
    };
    const onError = (error: unknown): void =>
      logger.warn({ err: error, driver }, 'The stream of the health of devices has ended');
    await periodically(receive, { clock, periodMs: RETRY_MS, signal, onError });
  }

  async #receive(driver: string, socket: string, signal: AbortSignal): Promise<void> {
    const client = await connectGrpc({ socket, messages: HEALTH_MESSAGES, methods: HEALTH_METHODS });
    // A driver could send without an end, and each report syncs the pods of the devices that differ.
    const pace = new RateLimiter({ clock: this.#options.clock, ...REPORT_RATE });
    const onReport = ({ devices }: { readonly devices: readonly Report[] }): Promise<void> => {
      this.#applyReports(driver, devices);
      return pace.accept(signal);
    };
    try {
      await client.stream('nodeWatchResources', {}, onReport, { signal });
    } finally {
      client.close();
    }
  }

  #applyReports(driver: string, reports: readonly Report[]): void {
    const nowMs = this.#options.clock.monotonic();
    const before = this.#drivers.get(driver) ?? new Map<string, ReportedHealth>();
    const changed = new Set<string>();
    const health = new Map<string, ReportedHealth>();
    for (const report of reports.slice(0, MAX_DEVICES)) {
      const key = healthKey(report.device?.poolName ?? '', report.device?.deviceName ?? '');
      const reported = reportedHealth(report, nowMs);
      const last = before.get(key);
      health.set(key, reported);
      if (
        last?.health !== reported.health ||
        last.message !== reported.message ||
        last.timeoutMs !== reported.timeoutMs
      )
        changed.add(key);
    }
    for (const [key, reported] of before) {
      if (health.has(key)) continue;
      if (nowMs > reported.untilMs || health.size >= MAX_DEVICES) changed.add(key);
      else health.set(key, reported);
    }
    this.#drivers.set(driver, health);
    if (changed.size > 0) this.#options.onChange(driver, changed);
  }
}

function reportedHealth({ health, healthCheckTimeoutSeconds, message }: Report, nowMs: number): ReportedHealth {
  const timeoutMs = healthCheckTimeoutSeconds > 0 ? healthCheckTimeoutSeconds * 1000 : DEFAULT_TIMEOUT_MS;
  return {
    health: HEALTHS[health] ?? 'Unknown',
    ...(message === '' ? {} : { message: shortened(message) }),
    timeoutMs,
    untilMs: nowMs + timeoutMs,
  };
}

function shortened(message: string): string {
  return message.length <= LONGEST_MESSAGE ? message : `${message.slice(0, LONGEST_MESSAGE - 3)}...`;
}
