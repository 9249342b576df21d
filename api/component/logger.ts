/** What every part logs with. pino implements it (`logging.ts`); tests pass `silentLogger`. Messages are plain sentences; facts are fields. */
export interface Logger {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
  child(fields: object): Logger;
  /** Throws why the last line could not be written (the health check `log`). */
  check?(): void;
}

export const silentLogger: Logger = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
  child: () => silentLogger,
};
