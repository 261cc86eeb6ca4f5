/** Progress of an installation in names and megabytes, parsed from the output lines of uv, pipx and pip. */

/** State to show: part of a sentence, and the share of the download in percent. */
export interface Progress {
  message: string;
  percent: number;
}

const MB_PER_UNIT: Record<string, number> = {
  kB: 1e-3,
  KiB: 1.024e-3,
  MB: 1,
  MiB: 1.048576,
  GB: 1e3,
  GiB: 1.073741824e3,
};
// uv: "Downloading numpy (16.1MiB)". pip: "Downloading numpy-2.4.6-cp311-[...].whl (16.9 MB)", or an address in its place.
const STARTED = /^(?:Downloading|Using cached) (?:\S*\/)?(\S+?)(-\d\S*)?(?: \(download\))? \(([\d.]+) ?([kKMG]i?B)\)$/;
const FINISHED = /^Downloaded (\S+)/; // uv alone prints it
const DOWNLOADED = /^(?:Prepared (\d+ )packages?|Installing collected packages)/;
const COLLECTING = /^Collecting /;
const PHASES: [RegExp, (count: string) => string][] = [
  [/^Resolved (\d+) packages?/, (count) => `${count} packages are needed`],
  [COLLECTING, () => "looking up packages"],
  [/^Installing build dependencies/, () => "downloading a compiler"],
  [/^(?:Building|Building wheel for) speclsp/, () => "compiling speclsp"],
  [DOWNLOADED, (count) => `installing ${count}packages`],
];

export class InstallProgress {
  private readonly unfinishedMb = new Map<string, number>(); // by package
  private receivedMb = 0;
  private percent = 0;

  constructor(private readonly expectedMb: number) {}

  /** The state after an output line; undefined if the line changes nothing. */
  read(line: string): Progress | undefined {
    const started = STARTED.exec(line);
    if (started) {
      const [, name = "", version = "", size = "", unit = ""] = started;
      if (version.endsWith(".metadata")) return undefined;
      if (version) this.finishAll(); // pip downloads one file after the other
      this.unfinishedMb.set(name.replaceAll("_", "-"), Number(size) * (MB_PER_UNIT[unit] ?? 0));
      return this.download();
    }
    const finished = FINISHED.exec(line);
    if (finished) {
      this.finish(finished[1] ?? "");
      return this.download();
    }
    for (const [pattern, words] of PHASES) {
      const phase = pattern.exec(line);
      if (!phase || (pattern === COLLECTING && this.unfinishedMb.size)) continue; // old versions of pip alternate
      if (pattern === DOWNLOADED) this.percent = 100;
      return { message: words(phase[1] ?? ""), percent: this.percent };
    }
    return undefined;
  }

  /** The largest unfinished download, and the sum of the finished ones. */
  private download(): Progress {
    const [name] = [...this.unfinishedMb].sort(([, one], [, other]) => other - one)[0] ?? [""];
    const unfinishedMb = [...this.unfinishedMb.values()].reduce((sum, mb) => sum + mb, 0);
    const totalMb = Math.max(this.expectedMb, this.receivedMb + unfinishedMb);
    this.percent = (100 * this.receivedMb) / totalMb;
    const amount = `${Math.round(this.receivedMb)} of ${Math.round(totalMb)} MB`;
    return { message: `downloading${name && ` ${name}`}, ${amount}`, percent: this.percent };
  }

  private finish(name: string): void {
    this.receivedMb += this.unfinishedMb.get(name) ?? 0;
    this.unfinishedMb.delete(name);
  }

  private finishAll(): void {
    for (const name of this.unfinishedMb.keys()) this.finish(name);
  }
}
