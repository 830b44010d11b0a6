# Not run by its authors, who had no Windows at hand: only read. Its command line ran in Wine's cmd.
#
# Plays this PC's games for a head, and starts again ten seconds after it ended. What it prints goes to host.log in its
# folder, the last run's to host.log.1.

[CmdletBinding()]
param(
    [Parameter(Mandatory)] [string] $Head,
    [string] $Folder = (Join-Path $env:LOCALAPPDATA 'soulsgraph')
)

$ErrorActionPreference = 'Stop'
# Its files are named from here: a path with a space would need quotes, which PowerShell 5 and cmd each read their own way.
Set-Location -LiteralPath $Folder
$command = "venv\Scripts\soulsgraph.exe fleet host --head $Head --token-file token --ca head.pem --games games.toml"

while ($true) {
    if (Test-Path host.log) { Move-Item -Force host.log host.log.1 }
    # By cmd: PowerShell 5 would turn what the command prints to standard error into errors of its own.
    & cmd.exe /d /c "$command > host.log 2>&1"
    Start-Sleep -Seconds 10
}
