# Not run by its authors, who had no Windows at hand: only read.
#
# Registers a scheduled task that plays this PC's games for a head from log-on on, as the user who types:
#   powershell -ExecutionPolicy Bypass -File install-host-task.ps1 -Head HOST:7443
# Before, in %LOCALAPPDATA%\soulsgraph: venv, with soulsgraph installed; token; head.pem; games.toml.
# -Elevated runs it as administrator, which a game that runs so needs. -Remove ends and removes it.

[CmdletBinding()]
param(
    [string] $Head,
    [string] $Folder = (Join-Path $env:LOCALAPPDATA 'soulsgraph'),
    [switch] $Elevated,
    [switch] $Remove
)

$ErrorActionPreference = 'Stop'
$name = 'soulsgraph fleet host'
$user = [System.Security.Principal.WindowsIdentity]::GetCurrent().Name

if ($Remove) {
    Stop-ScheduledTask -TaskName $name -ErrorAction SilentlyContinue
    Unregister-ScheduledTask -TaskName $name -Confirm:$false
    return
}
if ($Head -notmatch '^.+:\d+$') { throw "-Head: expected HOST:PORT, found '$Head'." }
foreach ($needed in 'venv\Scripts\soulsgraph.exe', 'token', 'head.pem', 'games.toml') {
    $path = Join-Path $Folder $needed
    if (-not (Test-Path $path)) { throw "${path}: expected it, found none; see the head of this script." }
}

# Windows has no modes: only this user may read the token.
& icacls.exe (Join-Path $Folder 'token') /inheritance:r /grant:r "${user}:R" | Out-Null
if ($LASTEXITCODE -ne 0) { throw "token: expected to restrict who may read it, icacls ended with $LASTEXITCODE." }

Copy-Item -Force (Join-Path $PSScriptRoot 'run-host.ps1') $Folder
$script = Join-Path $Folder 'run-host.ps1'
$arguments = "-NoProfile -ExecutionPolicy Bypass -WindowStyle Hidden -File `"$script`" -Head `"$Head`" -Folder `"$Folder`""
$level = if ($Elevated) { 'Highest' } else { 'Limited' }

$task = @{
    TaskName  = $name
    Action    = New-ScheduledTaskAction -Execute 'powershell.exe' -Argument $arguments
    Trigger   = New-ScheduledTaskTrigger -AtLogOn -User $user
    # Interactive: keys and windows are those of the session.
    Principal = New-ScheduledTaskPrincipal -UserId $user -LogonType Interactive -RunLevel $level
    Settings  = New-ScheduledTaskSettingsSet -AllowStartIfOnBatteries -DontStopIfGoingOnBatteries `
        -ExecutionTimeLimit ([TimeSpan]::Zero) -MultipleInstances IgnoreNew `
        -RestartCount 999 -RestartInterval (New-TimeSpan -Minutes 1)
}
Register-ScheduledTask @task -Force | Out-Null
Start-ScheduledTask -TaskName $name
Write-Output "the task '$name' plays for $Head from each log-on on; its log: $(Join-Path $Folder 'host.log')"
