/** Serves `/version`, the release of the API. */
import { stringifyJson } from '../../api/codec/json.ts';
import { checkProduced } from './media-type.ts';
import { reading, type PathHandlers } from './path-handlers.ts';

interface VersionInfo {
  readonly major: string;
  readonly minor: string;
  readonly emulationMajor: string;
  readonly emulationMinor: string;
  readonly minCompatibilityMajor: string;
  readonly minCompatibilityMinor: string;
  readonly gitVersion: string;
  readonly gitCommit: string;
  readonly gitTreeState: string;
  readonly buildDate: string;
  readonly goVersion: string;
  readonly compiler: string;
  readonly platform: string;
}

/** Adds the path. Only JSON is produced. */
export function installVersion(paths: PathHandlers, info: VersionInfo): void {
  const body = stringifyJson(info, 2);
  paths.service(
    '/version',
    reading((request) => {
      checkProduced(request.header('accept'), ['application/json']);
      return request.send(200, 'application/json', body);
    }),
  );
}
